// What the kernels of the decomposed Winograd convolution share: sizes, transforms, where data lie.
//
// A KSIZE x KSIZE filter is split along each axis into P0 parts of R0 taps and, behind them, P1
// parts of R1 taps (P1 = 0: parts of one size only). Tiles have M x M outputs, OUT x OUT in all, so
// TILES along an axis. The parts of one size ("group") are summed in one Winograd domain of
// N = M + R - 1 points along an axis; groups of rows and of columns make up to four pairs.
//
//   V  for each pair, for each point: (batch, starts of rows, starts of columns, CV channels)
//   U  for each pair, for each point, for each part: filters (CV, KM) or (KM, CV)
//   W  for each pair, for each point: products (batch, TILES, TILES, KM planes)
//
// "Starts" are the places where an input tile begins. With R == M the parts of all tiles begin on
// one grid and share their input transforms; else each part has its own TILES starts.
#ifndef NEOCOG_WINOGRAD_CUH
#define NEOCOG_WINOGRAD_CUH

#include "platform.cuh"

// -- operands of the products: 0 and 3 float, 2 half -----------------------------------------------
#if OPERAND == 2
typedef u16 operand_t;
DEVICE operand_t to_operand(float value) { return half_of(value); }
#else
typedef float operand_t;
DEVICE operand_t to_operand(float value) { return value; }
#endif

// -- the parts of one size ------------------------------------------------------------------------
template <int group>
struct Group {
    static constexpr int r = group ? R1 : R0;
    static constexpr int parts = group ? P1 : P0;
    static constexpr int n = parts ? M + r - 1 : 0;
    static constexpr int first = group ? R0 * P0 : 0;
    static constexpr bool shared = r == M;
    static constexpr int starts = shared ? TILES + parts - 1 : TILES * parts;
    static constexpr int step = shared ? 1 : TILES;  // from a part's starts to the next part's
};

constexpr int N0 = Group<0>::n, N1 = Group<1>::n;
constexpr int GROUPS = P1 ? 2 : 1;
constexpr int POINTS = (N0 + N1) * (N0 + N1);

// First point of a pair of groups, and of its filters and its starts per point.
template <int gy, int gx>
struct Pair {
    using Y = Group<gy>;
    using X = Group<gx>;
    static constexpr int points = Y::n * X::n;
    static constexpr int parts = Y::parts * X::parts;
    static constexpr int starts = Y::starts * X::starts;
    using Before = Pair<gx ? gy : gy - 1, gx ? 0 : 1>;
    static constexpr int first_point = Before::first_point + Before::points;
    static constexpr int first_filter = Before::first_filter + Before::points * Before::parts;
    static constexpr int first_start = Before::first_start + Before::points * Before::starts;
};
template <>
struct Pair<0, 0> {
    using Y = Group<0>;
    using X = Group<0>;
    static constexpr int points = N0 * N0;
    static constexpr int parts = P0 * P0;
    static constexpr int starts = Y::starts * Y::starts;
    static constexpr int first_point = 0, first_filter = 0, first_start = 0;
};

// -- transforms: matrices as lists of numbers, rows one after the other ---------------------------
// Every index is known once loops are unrolled: the numbers become part of the instructions.
__device__ constexpr float input0[] = {INPUT0}, input1[] = {INPUT1};
__device__ constexpr float filter0[] = {FILTER0}, filter1[] = {FILTER1};
__device__ constexpr float output0[] = {OUTPUT0}, output1[] = {OUTPUT1};

// sum + weight * value where the weight is known when compiling: 0 and +-1 cost no product.
DEVICE float weighed(float sum, float weight, float value) {
    if (weight == 0.0f) return sum;
    if (weight == 1.0f) return sum + value;
    if (weight == -1.0f) return sum - value;
    return fmaf(weight, value, sum);
}

// B^T d along one axis.
template <int group>
DEVICE void transform_input(float (&v)[Group<group>::n], const float (&d)[Group<group>::n]) {
    UNROLL for (int i = 0; i < Group<group>::n; i++) {
        v[i] = 0.0f;
        UNROLL for (int j = 0; j < Group<group>::n; j++)
            v[i] = weighed(v[i], (group ? input1 : input0)[i * Group<group>::n + j], d[j]);
    }
}
// G g along one axis.
template <int group>
DEVICE void transform_filter(float (&u)[Group<group>::n], const float (&g)[Group<group>::r]) {
    UNROLL for (int i = 0; i < Group<group>::n; i++) {
        u[i] = 0.0f;
        UNROLL for (int j = 0; j < Group<group>::r; j++)
            u[i] = weighed(u[i], (group ? filter1 : filter0)[i * Group<group>::r + j], g[j]);
    }
}
// A^T w along one axis.
template <int group>
DEVICE void transform_output(float (&y)[M], const float (&w)[Group<group>::n]) {
    UNROLL for (int i = 0; i < M; i++) {
        y[i] = 0.0f;
        UNROLL for (int j = 0; j < Group<group>::n; j++)
            y[i] = weighed(y[i], (group ? output1 : output0)[i * Group<group>::n + j], w[j]);
    }
}

// Row (or column) of the input at which start `s` of a group's starts begins.
template <int group>
DEVICE int place_of_start(int s) {
    using G = Group<group>;
    if (G::shared) return G::first + M * s;
    return G::first + G::r * (s / TILES) + M * (s % TILES);
}

// V = B^T d B of one channel's tile; put(point, value) is called for each point of the pair.
template <int gy, int gx, class Get, class Put>
DEVICE void input_tile(Get get, Put put) {
    constexpr int ny = Group<gy>::n, nx = Group<gx>::n;
    float columns[nx][ny];
    UNROLL for (int x = 0; x < nx; x++) {
        float d[ny];
        UNROLL for (int y = 0; y < ny; y++) d[y] = get(y, x);
        transform_input<gy>(columns[x], d);
    }
    UNROLL for (int y = 0; y < ny; y++) {
        float d[nx], v[nx];
        UNROLL for (int x = 0; x < nx; x++) d[x] = columns[x][y];
        transform_input<gx>(v, d);
        UNROLL for (int x = 0; x < nx; x++) put(y * nx + x, v[x]);
    }
}

// Y += A^T W A of one plane's tile; get(point) gives the product at each point of the pair.
template <int gy, int gx, class Get>
DEVICE void output_tile(float (&sum)[M][M], Get get) {
    constexpr int ny = Group<gy>::n, nx = Group<gx>::n;
    float rows[M][nx];
    UNROLL for (int x = 0; x < nx; x++) {
        float w[ny], y[M];
        UNROLL for (int i = 0; i < ny; i++) w[i] = get(i * nx + x);
        transform_output<gy>(y, w);
        UNROLL for (int i = 0; i < M; i++) rows[i][x] = y[i];
    }
    UNROLL for (int i = 0; i < M; i++) {
        float y[M];
        transform_output<gx>(y, rows[i]);
        UNROLL for (int j = 0; j < M; j++) sum[i][j] += y[j];
    }
}

// put(cell, value) for each output of a tile that lies in the layer, cell over (batch, OUT, OUT).
template <class Put>
DEVICE void put_tile(const float (&sum)[M][M], int tile, Put put) {
    int image = tile / (TILES * TILES);
    int top = tile / TILES % TILES * M, left = tile % TILES * M;
    UNROLL for (int i = 0; i < M; i++)
        UNROLL for (int j = 0; j < M; j++)
            if (top + i < OUT && left + j < OUT)
                put(((size_t)image * OUT + top + i) * OUT + left + j,
                    sum[i][j]);
}

// Response of an S-cell whose excitation comes out of the transforms with a rounding error of the
// whole tile. Where v is 0 the cell's own window is silent and so is the cell: the error, divided
// by the small `silence`, would be a response.
DEVICE float winograd_s_response(float e, float v, float theta, float silence) {
    return v > 0.0f ? s_response(e, v, theta, silence) : 0.0f;
}

// -- where a point's data lie (the same for a whole block) ----------------------------------------
struct Place {
    int start;              // V: rows of CV channels before the point's, per digit
    int filter;             // U: filters before the point's
    int parts_x;            // parts along a row,
    int parts;              // in all
    int starts_y, starts_x; // starts of rows and of columns
    int step_y, step_x;     // starts from a part to the one below, to its right
};

template <int gy, int gx>
DEVICE Place place_in_pair(int point) {
    using P = Pair<gy, gx>;
    int own = point - P::first_point;
    return {P::first_start + own * P::starts,
            P::first_filter + own * P::parts,
            P::X::parts,
            P::parts,
            P::Y::starts,
            P::X::starts,
            P::Y::step,
            P::X::step};
}

DEVICE Place place_of_point(int point) {
#if P1
    if (point >= Pair<1, 1>::first_point) return place_in_pair<1, 1>(point);
    if (point >= Pair<1, 0>::first_point) return place_in_pair<1, 0>(point);
    if (point >= Pair<0, 1>::first_point) return place_in_pair<0, 1>(point);
#endif
    return place_in_pair<0, 0>(point);
}

// Row of CV channels, counted from the point's first, where the first part of a tile begins.
DEVICE int first_row(const Place& place, int tile) {
    int image = tile / (TILES * TILES), inside = tile % (TILES * TILES);
    return (image * place.starts_y + inside / TILES) * place.starts_x + inside % TILES;
}

// Rows of CV channels from a tile's first part to its part `part`.
DEVICE int row_of_part(const Place& place, int part) {
    int y = part / place.parts_x, x = part % place.parts_x;
    return y * place.step_y * place.starts_x + x * place.step_x;
}

#endif  // NEOCOG_WINOGRAD_CUH
