"""The loops of replay as machine code for this processor, made by numba."""

import llvmlite.binding as llvm
from numba import njit, types

from advisor.prediction import engine, time_slice_engine
from advisor.prediction.engine_layout import LOOPS

_HOMES = {"mps": engine, "naive": time_slice_engine}
_TYPES = {
    "F": types.CPointer(types.float64),
    "I": types.CPointer(types.int64),
    "U": types.CPointer(types.uint64),
    "f": types.float64,
    "n": types.int64,
}


def machine_code() -> bytes:
    """An object file with each of `LOOPS` under its name, called as numba calls functions.

    First come the address of the result, a float, and that of an error; 0 is returned if there is
    none. It needs nothing of numba or Python, so that it can be loaded without them.
    """
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(),
        opt=3, reloc="pic", codemodel="small", jit=True,
    )  # fmt: skip
    module, *others = [_module(name) for name in LOOPS]
    for each in others:
        module.link_in(each)
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return target.emit_object(module)


def _module(name):
    """The loop called `name`, which alone can be seen from outside."""
    given = tuple(_TYPES[kind] for kind in LOOPS[name])
    loop = njit(
        types.float64(*given), error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(getattr(_HOMES[name], name))
    module = llvm.parse_assembly(loop.inspect_llvm(given))
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration:
            each.linkage = "internal"
    own = module.get_function(loop.overloads[given].fndesc.llvm_func_name)
    own.linkage, own.name = "external", name
    return module
