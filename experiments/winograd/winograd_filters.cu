// Filters into the Winograd domain where they change from pass to pass: the two orders of threads
// that Lee and Kwak compare (Algorithm 1, Fig. 3).
//
//   INDEXING 0  channel-wise: the filter varies fastest within a warp, the sub-filter not at all, so
//               that all lanes run the transform of one size.
//               Channels of 64 neighbouring threads are those that lie side by side in U.
//   INDEXING 1  thread-wise: neighbouring lanes take the sub-filters of one filter, one after another;
//               a warp runs the transform of each size it holds, most lanes idle.
//
// Their Algorithm 1 is corrected in three places: the grid is (ceil(K / 64) SF, ceil(C / 8)) (as
// printed, ceil(K SF / 64) leaves transforms out at K = 96), the guard is on the filter gid < K (not
// on its block k), and a thread's place in shared memory is tx 8 + ty (not tx 64 + ty, which runs
// beyond the array). Filters that stay the same are transformed once, in float64, by the host.
//
// CHANNELS_FAST: U holds filters as (K, C) instead of (C, K), see winograd.cuh.
#include "winograd.cuh"

constexpr int SIDE = P0 + P1, SUBFILTERS = SIDE * SIDE;
constexpr int FAST = 64, SLOW = 8, THREADS = FAST * SLOW;
constexpr int TAPS = R0 * R0, HELD = (TAPS + N0 * R0) | 1;  // a thread's floats: w, then G w

template <int gy, int gx>
DEVICE void transform_part(const float* __restrict__ w, operand_t* __restrict__ u, float* held, size_t q,
                           int part_y, int part_x) {
    using P = Pair<gy, gx>;
    constexpr int ry = P::Y::r, rx = P::X::r, ny = P::Y::n, nx = P::X::n;
    int top = P::Y::first + ry * part_y, left = P::X::first + rx * part_x;
    float* half = held + TAPS;
    UNROLL for (int y = 0; y < ry; y++)
        UNROLL for (int x = 0; x < rx; x++) {
            bool inside = top + y < KSIZE && left + x < KSIZE;
            held[y * rx + x] = inside ? w[(top + y) * KSIZE + left + x] : 0.0f;
        }
    UNROLL for (int x = 0; x < rx; x++) {
        float g[ry], v[ny];
        UNROLL for (int y = 0; y < ry; y++) g[y] = held[y * rx + x];
        transform_filter<gy>(v, g);
        UNROLL for (int y = 0; y < ny; y++) half[y * rx + x] = v[y];
    }
    constexpr size_t filters = (size_t)CV * KM;
    size_t at = (size_t)(P::first_filter + part_y * P::X::parts + part_x) * filters + q;
    UNROLL for (int y = 0; y < ny; y++) {
        float g[rx], v[nx];
        UNROLL for (int x = 0; x < rx; x++) g[x] = half[y * rx + x];
        transform_filter<gx>(v, g);
        UNROLL for (int x = 0; x < nx; x++)
            u[at + (size_t)(y * nx + x) * P::parts * filters] = to_operand(v[x]);
    }
}

// w (planes, channels, KSIZE, KSIZE) -> U, of which what lies beyond planes and channels stays as it is.
KERNEL(THREADS) filter_split(const float* __restrict__ w, operand_t* __restrict__ u, int planes,
                             int channels) {
    DYNAMIC_SHARED(shared);
    wait_for_previous();
    start_next();
#if INDEXING == 1
    int thread = blockIdx.x * THREADS + threadIdx.x, place = threadIdx.x;
    int gid = thread / SUBFILTERS / channels, c = thread / SUBFILTERS % channels;
    int sid = thread % SUBFILTERS;
#else
    int tx = threadIdx.x % FAST, ty = threadIdx.x / FAST;
    int place = tx * SLOW + ty;
    int fast = blockIdx.x / SUBFILTERS * FAST + tx, slow = blockIdx.y * SLOW + ty;
    int gid = CHANNELS_FAST ? slow : fast, c = CHANNELS_FAST ? fast : slow;
    int sid = blockIdx.x % SUBFILTERS;
#endif
    if (gid >= planes || c >= channels) return;
    float* held = (float*)shared + place * HELD;
    w += ((size_t)gid * channels + c) * (KSIZE * KSIZE);
    size_t q = CHANNELS_FAST ? (size_t)gid * CV + c : (size_t)c * KM + gid;
    int y = sid / SIDE, x = sid % SIDE;
#if P1
    if (y >= P0 && x >= P0) return transform_part<1, 1>(w, u, held, q, y - P0, x - P0);
    if (y >= P0) return transform_part<1, 0>(w, u, held, q, y - P0, x);
    if (x >= P0) return transform_part<0, 1>(w, u, held, q, y, x - P0);
#endif
    transform_part<0, 0>(w, u, held, q, y, x);
}
