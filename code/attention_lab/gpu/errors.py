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


class WrongArgument(KernelError, TypeError):
    """Something of the wrong kind was given, or too much or too little."""

    kind = "wrong-argument"


class WrongValue(KernelError, ValueError):
    """Something of the right kind was given that has no meaning here."""

    kind = "wrong-value"


class UnsupportedConstruct(KernelError, NotImplementedError):
    """The kernel uses Python that this recorder (or a GPU) cannot run."""

    kind = "unsupported"

    def __init__(self, what, place, advice=""):
        sentence = f"{place}: {what}."
        if advice:
            sentence += f" {advice}"
        super().__init__(sentence)
        self.place = place


class LaunchRefused(KernelError, ValueError):
    """No GPU would accept this launch."""

    kind = "launch-refused"


class KernelFault(KernelError, RuntimeError):
    """The kernel was running when it did something no GPU defines."""

    kind = "fault"


class CompilerMissing(KernelError, ImportError):
    """The CUDA wheels are not installed."""

    kind = "compiler-missing"


class CompileRefused(KernelError, ValueError):
    """The compiler refuses the kernel, as it would on a GPU."""

    kind = "compile-refused"
