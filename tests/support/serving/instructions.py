"""The memory accesses of the table's kernels as processors get them: their code for arm64 and x86-64, in short.

`python -m tests.support.serving.instructions [NAME]` prints JSON: target -> function -> its accesses, a letter each:

    A  a load with acquire (ldar, ldapr)        R  a store with release (stlr)
    L  a fence that holds loads (dmb ishld)     F  a fence that holds all (dmb ish; x86-64: the compiler's alone)
    l  another load       s  another store      c  a call      X  a fence or lock of x86-64, which none needs

With NAME, of an atomic of kernels/atomics.py, a plain load, a plain store or nothing stands in its place. Run with a
NUMBA_CACHE_DIR that is empty: numba keeps no LLVM code of what it loads.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import llvmlite.binding as llvm
import orjson
from numba import types
from numba.extending import register_jitable

from freshet.kernels import atomics

ARM, X86 = "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"
PLAIN = {
    "load_acquire": atomics._plain_load,
    "store_release": atomics._plain_store,
    "fence_acquire": atomics._no_fence,
    "fence_release": atomics._no_fence,
}
# What a line of assembly is; the first that fits. Accesses to the stack are none of the table's.
_ARM = (
    (r"ldar|ldapr", "A"),
    (r"stlr", "R"),
    (r"dmb\s+ishld", "L"),
    (r"dmb\s+ish\b", "F"),
    (r"ld.*\[(?!sp)", "l"),
    (r"st.*\[(?!sp)", "s"),
    (r"blr?\s", "c"),
)
_X86 = (
    (r"#MEMBARRIER", "F"),
    (r"mfence|lfence|sfence|lock\b|xchg", "X"),
    (r"call", "c"),
    (r"lea|prefetch|nop|cmp|test|push|pop", ""),
    (r"\w+\s+[^#]*,\s*-?\w*\((?!%rsp)[^)]*\)$", "s"),
    (r"\w+\s+[^#]*\((?!%rsp)[^)]*\),", "l"),
)

_FUNCTION = r"^(_ZN(?!7cpython)\w+):[^\n]*\n(.*?)^\.Lfunc_end"  # without what Python enters it by


def kernels() -> dict[Any, tuple[Any, ...]]:
    """The kernels that share memory with other processes, and the types of what they get."""
    from freshet.state.served import read_kernels, write_kernels

    word, words, ids = types.int64, types.Array(types.int64, 1, "C"), types.Array(types.int64, 1, "C", readonly=True)
    table, positions = types.Array(types.int64, 2, "C"), types.Array(types.int64, 2, "C", readonly=True)
    floats, rows = (types.Array(types.float32, n, "C") for n in (1, 2))
    new = types.Array(types.float32, 2, "C", readonly=True)
    return {
        write_kernels.put_numbers: (words, floats, ids, ids, new, words),
        write_kernels.set_positions: (words, positions),
        read_kernels.read_numbers: (words, floats, word, ids, words, rows),
        read_kernels.read_positions: (words, table),
        read_kernels.slots_in_ring: (words, word, words),
        atomics.publish_word: (words, word, word),
        atomics.read_word: (words, word),
    }


def assembly(ir: str, triple: str) -> str:
    """The assembly of LLVM code for another target than it was made for."""
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=3)
    ir = re.sub(r'target triple = ".*"', f'target triple = "{triple}"', ir)
    ir = re.sub(r'target datalayout = ".*"', f'target datalayout = "{machine.target_data}"', ir)
    return str(machine.emit_assembly(llvm.parse_assembly(ir)))


def accesses(body: str, triple: str) -> str:
    """The letters of a function."""
    found = ""
    for line in body.splitlines():
        for pattern, letter in _ARM if triple == ARM else _X86:
            if re.match(pattern, line.strip()):
                found += letter
                break
    return found


def name_of(symbol: str) -> str:
    """Of a mangled name _ZN5state6served...11put_numbersB...: the last part."""
    at, found = len("_ZN"), ""
    while size := re.match(r"\d+", symbol[at:]):
        begin = at + len(size[0])
        at = begin + int(size[0])
        found = symbol[begin:at]
    return found


def main(plain: str) -> None:
    """Compile, and print."""
    if plain:
        setattr(atomics, plain, register_jitable(PLAIN[plain]))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    found: dict[str, dict[str, str]] = {ARM: {}, X86: {}}
    for kernel, signature in kernels().items():
        kernel.compile(signature)
        [ir] = kernel.inspect_llvm().values()
        for triple, functions in found.items():
            for symbol, body in re.findall(_FUNCTION, assembly(ir, triple), re.DOTALL | re.MULTILINE):
                functions[name_of(symbol)] = accesses(body, triple)
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    main(*sys.argv[1:] or ("",))
