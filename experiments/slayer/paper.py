"""The figures that the GPU paper gives (Ikeda et al. 2011)."""

#: Table 2: planes of US2, US3, US4.
SIZE = "26/78/70"
#: The published network, learned by ``neocog train --recipe ikeda2011``.
OWN = "ikeda2011"
#: Table 5: microseconds of S1 .. S4 on a GTX 280.
GPU_US = {
    "T1": (346, 1340, 1980, 2220), "T3": (388, 769, 721, 1270), "T4": (177, 573, 667, 847),
    "T5": (168, 547, 627, 736),
}  # fmt: skip
#: Section 6.1: threads per block that were best for T4.
BEST_THREADS = (64, 54, 78, 70)
#: Table 6: milliseconds, MB/s and MFLOPS of S1 .. S4 on a Core2 Duo at 2.33 GHz.
CPU_MS = {
    "CPU S": (29.7, 116, 144, 32.9), "CPU F": (3.33, 6.91, 9.98, 6.01), "CPU G": (23.0, 72.5, 131, 46.0),
}  # fmt: skip
CPU_MB_S = {"CPU S": (586, 555, 532, 543), "CPU F": (600, 551, 529, 570)}
CPU_MFLOPS = {"CPU S": (179, 194, 145, 129), "CPU F": (181, 189, 147, 206)}
#: Table 8: share of inputs that are not silent, all and S1 .. S4.
HEARD = {"all": 0.057, "US1": 0.078, "US2": 0.046, "US3": 0.052, "US4": 0.063}
#: Sections 5.2 and 5.3: accesses of a character in millions: u_S by scattering (F: reads, writes) and
#: gathering (T), v by scattering, and u_C for v.
ACCESSES = (2.0, 1.9, 0.0, 0.14, 0.11, 0.11, 0.056)
#: Section 6.4: one character in milliseconds: CPU F, GPU, its transfers; what was wanted.
CHARACTER_MS = {"CPU F": 27.3, "GPU T": 3.4, "transfers": 0.27, "wanted": 4.1}
