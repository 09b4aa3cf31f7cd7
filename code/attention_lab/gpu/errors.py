"""What can be wrong with a kernel or a launch, said in plain sentences."""

# An error's name says what happened, as in ShapeMismatch.
# ruff: noqa: N818


class KernelError(Exception):
    """Something about a kernel or its launch is wrong.

    Attributes
    ----------
    kind : str
        One word for programs, such as ``"out-of-bounds"``. The same word
        names the hazard in a recording.
    """

    kind = "kernel-error"

    def __init__(self, message, kind=None):
        super().__init__(message)
        if kind is not None:
            self.kind = kind


class UnsupportedConstruct(KernelError):
    """The kernel uses Python that this recorder (or a GPU) cannot run."""

    kind = "unsupported"

    def __init__(self, what, place, advice=""):
        sentence = f"{place}: {what}."
        if advice:
            sentence += f" {advice}"
        super().__init__(sentence)
        self.place = place


class LaunchRefused(KernelError):
    """No GPU would accept this launch."""

    kind = "launch-refused"


class KernelFault(KernelError):
    """The kernel was running when it did something no GPU defines."""

    kind = "fault"


class CompilerMissing(KernelError):
    """The CUDA wheels are not installed."""

    kind = "compiler-missing"


class CompileRefused(KernelError):
    """The compiler refuses the kernel, as it would on a GPU."""

    kind = "compile-refused"
