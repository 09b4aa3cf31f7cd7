"""The instruction of a tensor core, for Numba's CUDA compiler.

Loaded where kernels are compiled for a GPU only; `compile_worker` loads this
file by its path, so it imports nothing of this package.
"""


def make_mma():
    """Build the intrinsic behind `tensor_core.mma_by_shuffles`.

    It takes views of local arrays: c of 4 float32, a of 8 and b of 4 float16.
    Two float16 make one 32-bit register, as PTX asks for. Before compute
    capability 8.0 there is only a product with half as many columns of a:
    two of them, on the first and the second half of the fragments, add the
    same numbers.

    References
    ----------
    PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions", mma.sync
    with shapes m16n8k16 (sm_80 and later) and m16n8k8 (sm_75 and later).
    """
    from llvmlite import ir
    from numba import cuda
    from numba.core import cgutils, types

    try:
        from numba.cuda.extending import intrinsic
    except ImportError:  # numba-cuda before 0.23
        from numba.extending import intrinsic

    half, word, real = ir.IntType(16), ir.IntType(32), ir.FloatType()

    def instruction(builder, shape, a, b, c):
        """Emit one mma.sync and return its four sums."""
        places = iter(range(4, 8 + len(a) + len(b)))
        texts = [
            "{" + ", ".join(f"${next(places)}" for _ in group) + "}"
            for group in (a, b, c)
        ]
        text = (
            f"mma.sync.aligned.{shape}.row.col.f32.f16.f16.f32 "
            f"{{$0, $1, $2, $3}}, {', '.join(texts)};"
        )
        registers = ["=f"] * 4 + ["r"] * len(a + b) + ["f"] * 4
        sums = ir.LiteralStructType([real] * 4)
        kind = ir.FunctionType(sums, [word] * len(a + b) + [real] * 4)
        assembly = ir.InlineAsm(kind, text, ",".join(registers), True)
        made = builder.call(assembly, a + b + c)
        return [builder.extract_value(made, i) for i in range(4)]

    @intrinsic
    def mma(typingctx, c, a, b):
        """Add a @ b to c, with the whole warp."""

        def codegen(context, builder, signature, args):
            places = [
                context.make_array(kind)(context, builder, value).data
                for kind, value in zip(signature.args, args, strict=True)
            ]

            def element(pointer, i):
                return cgutils.gep_inbounds(builder, pointer, i)

            def registers(pointer, count):
                pointer = builder.bitcast(pointer, half.as_pointer())
                packed = []
                for i in range(0, count, 2):
                    low, high = (
                        builder.zext(builder.load(element(pointer, k)), word)
                        for k in (i, i + 1)
                    )
                    high = builder.shl(high, word(16))
                    packed.append(builder.or_(low, high))
                return packed

            sums = [builder.load(element(places[0], i)) for i in range(4)]
            first, second = registers(places[1], 8), registers(places[2], 4)
            if cuda.get_current_device().compute_capability >= (8, 0):
                parts = [("m16n8k16", first, second)]
            else:
                parts = [
                    ("m16n8k8", first[:2], second[:1]),
                    ("m16n8k8", first[2:], second[1:]),
                ]
            for shape, left, right in parts:
                sums = instruction(builder, shape, left, right, sums)
            for i, value in enumerate(sums):
                builder.store(value, element(places[0], i))
            return context.get_dummy_value()

        return types.void(c, a, b), codegen

    return mma
