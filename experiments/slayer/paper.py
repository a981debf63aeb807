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
#: Table 8: share of inputs that are not silent, all and S1 .. S4.
HEARD = {"all": 0.057, "US1": 0.078, "US2": 0.046, "US3": 0.052, "US4": 0.063}
#: Section 6.4: one character in milliseconds: CPU F, GPU, its transfers; what was wanted.
CHARACTER_MS = {"CPU F": 27.3, "GPU T": 3.4, "transfers": 0.27, "wanted": 4.1}
