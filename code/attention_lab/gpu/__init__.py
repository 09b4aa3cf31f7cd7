"""Where the CUDA kernels run: on a GPU, or recorded on a CPU.

Read the recorder in this order; every file has one job.

0. The door: `driver` asks whether there is a GPU, `door` decides.
1. The learner's side: `namespace` (the `cuda` that kernels see), `launch`
   (``kernel[grid, block](...)``), `arguments`, `limits`, `errors`,
   `recorder` (`record`) and `recording` (what it returns).
2. From source to something that runs: `kernel_source` finds it, `flatten`,
   `loops`, `flatten_expressions`, `flatten_subscripts`, `calls` (with
   `call_tables`) and `frames` reduce it to the small language of `ir`,
   `webs` splits variables, `inference` with its rules (`inference_rules`,
   `subscript_rules`, `primitive_rules`, `bounds`, `values`) types them as
   Numba would, `choices` tells apart the arrays that one variable may stand
   for, and a dialect writes text: `sites`, `loop_code`, `view_code`,
   `emission`, `whole_code`, `primitive_code`, `scalar_code`,
   `python_dialect`, `compiled_dialect`. `endless` finds the loops that wait
   in vain.
   `lowering` puts these in order.
3. Running it: `engines` chooses, `engine` interprets, `compiled_engine`
   compiles; both leave the turns to `schedule` and `warp`. `access` and
   `compiled_helpers` keep the log, `arithmetic` and `compiled_arithmetic`
   calculate like a GPU.
4. Judging it: `overlap` finds arguments that share memory, `events` are the
   columns (`trips` tells those of loops apart), `races` (with `fences`) and
   `hazards` name what is wrong (`explain` says it, `naming` says which
   thread), `warp_requests` and `traffic` count, `notes` remark, `walk` puts
   the accesses in the order a reader goes through them.
5. Asking others, each in a process of its own: `compile_card` asks NVIDIA's
   compiler (`signatures`, `compile_worker`), `simulator` asks numba's.

All but `compiled_*` and `compile_worker` need NumPy alone.
"""

from attention_lab.gpu.compile_card import compile_card
from attention_lab.gpu.door import cuda, to_device, where
from attention_lab.gpu.recorder import record

__all__ = ["compile_card", "cuda", "record", "to_device", "where"]
