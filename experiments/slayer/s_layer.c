// S-layers on one CPU core in the ways that Ikeda et al. (2011) compare with the GPU, float32.
//
//   s_scatter  their CPU S and F: v of all places first; then every input cell is added to all cells
//              that it reaches (loops L1 .. L3 over inputs, L4 .. L6 over cells). F (skip 1) leaves
//              out L4 .. L6 where the input is silent. block: planes that L4 takes at a time, all
//              inputs for each (cache blocking); 0: all planes.
//   s_gather   their CPU G: F turned into gathering (T1), the inhibition with the excitation (T2), the
//              range of each cell's inputs found beforehand (T5), the test for silence kept. block:
//              side of the square of places that a plane is computed on before the next plane.
//
// Arrays are plane by plane: u (inputs, size, size), a (planes, inputs, kernel, kernel),
// us (planes, out, out), v (out, out). With -DCOUNT every read, write and operation on floats is
// counted: that build is for counting alone.
#include <math.h>
#include <stddef.h>
#include <string.h>

enum {
    READ_U, READ_U_FOR_V, READ_A, READ_C, READ_V, READ_US, WRITE_V, WRITE_US, OPERATIONS, KINDS
};

#ifdef COUNT
static long long counted[KINDS];
void s_counts(long long* out, int reset) {
    memcpy(out, counted, sizeof counted);
    if (reset) memset(counted, 0, sizeof counted);
}
#define TELL(kind, n) (counted[kind] += (n))
#else
#define TELL(kind, n) ((void)0)
#endif

typedef struct {
    int inputs, size, planes, out, kernel, pad;
} Shape;

// The connecting area: taps low[i] .. high[i] - 1 of row i of the window have a weight c above 0.
typedef struct {
    int low[64], high[64];
} Area;

static Area area_of(const Shape* s, const float* c) {
    Area area;
    for (int i = 0; i < s->kernel; i++) {
        area.low[i] = area.high[i] = 0;
        for (int j = s->kernel - 1; j >= 0; j--)
            if (c[i * s->kernel + j] > 0.0f) {
                area.low[i] = j;
                if (area.high[i] == 0) area.high[i] = j + 1;
            }
    }
    return area;
}

static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

// max(0, sum a u - theta v) / (v + silence), over all cells.
static void respond(const Shape* s, const float* v, const float* silence, float theta, float* us) {
    const int cells = s->out * s->out;
    for (int k = 0; k < s->planes; k++)
        for (int i = 0; i < cells; i++) {
            TELL(READ_US, 1), TELL(READ_V, 1), TELL(WRITE_US, 1), TELL(OPERATIONS, 5);
            us[k * cells + i] = fmaxf(us[k * cells + i] - theta * v[i], 0.0f) / (v[i] + silence[k]);
        }
}

static void inhibit(const Shape* s, const Area* area, const float* restrict u,
                    const float* restrict c, float* restrict v) {
    for (int y = 0; y < s->out; y++)
        for (int x = 0; x < s->out; x++) {
            float sum = 0.0f;
            for (int k = 0; k < s->inputs; k++)
                for (int i = most(0, s->pad - y); i < least(s->kernel, s->size + s->pad - y); i++)
                    for (int j = most(area->low[i], s->pad - x);
                         j < least(area->high[i], s->size + s->pad - x); j++) {
                        const float value =
                            u[(k * s->size + y + i - s->pad) * s->size + x + j - s->pad];
                        TELL(READ_U_FOR_V, 1), TELL(READ_C, 1), TELL(OPERATIONS, 3);
                        sum += c[i * s->kernel + j] * value * value;
                    }
            TELL(WRITE_V, 1), TELL(OPERATIONS, 1);
            v[y * s->out + x] = sqrtf(sum);
        }
}

// L1 .. L6 for planes first .. last - 1.
static void scatter(const Shape* s, const Area* area, const float* restrict u,
                    const float* restrict a, int skip, int first, int last, float* restrict us) {
    const int taps = s->kernel * s->kernel;
    for (int input = 0; input < s->inputs; input++)
        for (int y = 0; y < s->size; y++)
            for (int x = 0; x < s->size; x++) {
                const float value = u[(input * s->size + y) * s->size + x];
                TELL(READ_U, 1);
                if (skip && value == 0.0f) continue;
                // the cells y + pad - kernel + 1 .. y + pad see it, as far as they are there
                const int top = most(0, y + s->pad - s->kernel + 1);
                const int bottom = least(s->out - 1, y + s->pad);
                for (int k = first; k < last; k++)
                    for (int row = top; row <= bottom; row++) {
                        const int i = y + s->pad - row;
                        const int left = most(0, x + s->pad - area->high[i] + 1);
                        const int right = least(s->out - 1, x + s->pad - area->low[i]);
                        const float* at =
                            a + ((size_t)k * s->inputs + input) * taps + i * s->kernel + x + s->pad;
                        float* to = us + (k * s->out + row) * s->out;
                        for (int column = left; column <= right; column++) {
                            TELL(READ_A, 1), TELL(READ_US, 1), TELL(WRITE_US, 1);
                            TELL(OPERATIONS, 2);
                            to[column] += at[-column] * value;
                        }
                    }
            }
}

void s_scatter(const Shape* s, const float* u, const float* a, const float* c, const float* silence,
               float theta, int skip, int block, float* v, float* us) {
    const int cells = s->out * s->out;
    const Area area = area_of(s, c);
    inhibit(s, &area, u, c, v);
    for (int i = 0; i < s->planes * cells; i++) {
        TELL(WRITE_US, 1);
        us[i] = 0.0f;
    }
    const int step = block > 0 ? block : s->planes;
    for (int first = 0; first < s->planes; first += step)
        scatter(s, &area, u, a, skip, first, least(first + step, s->planes), us);
    respond(s, v, silence, theta, us);
}

// The sum of a u over the window of cell y, x; that of c u^2 is added to square where it is given.
static float window(const Shape* s, const Area* area, const int* low, const int* high, int y, int x,
                    const float* u, const float* a, const float* c, float* square) {
    float sum = 0.0f;
    for (int input = 0; input < s->inputs; input++)
        for (int i = low[y]; i < high[y]; i++)
            for (int j = most(low[x], area->low[i]); j < least(high[x], area->high[i]); j++) {
                const float value = u[(input * s->size + y + i - s->pad) * s->size + x + j - s->pad];
                TELL(READ_U, 1);
                if (value == 0.0f) continue;
                const int tap = i * s->kernel + j;
                TELL(READ_A, 1), TELL(OPERATIONS, 2);
                sum += a[input * s->kernel * s->kernel + tap] * value;
                if (!square) continue;
                TELL(READ_C, 1), TELL(OPERATIONS, 3);
                *square += c[tap] * value * value;
            }
    return sum;
}

void s_gather(const Shape* s, const float* u, const float* a, const float* c, const float* silence,
              float theta, int block, float* us) {
    const int step = most(1, block);
    const size_t weights = (size_t)s->inputs * s->kernel * s->kernel;
    const Area area = area_of(s, c);
    float v[step * step];           // of the square of places at work
    int low[s->out], high[s->out];  // taps of each row or column of cells that lie on the layer
    for (int i = 0; i < s->out; i++) {
        low[i] = most(0, s->pad - i);
        high[i] = least(s->kernel, s->size + s->pad - i);
    }
    for (int top = 0; top < s->out; top += step)
        for (int left = 0; left < s->out; left += step)
            for (int k = 0; k < s->planes; k++)
                for (int y = top; y < least(s->out, top + step); y++)
                    for (int x = left; x < least(s->out, left + step); x++) {
                        float square = 0.0f, *own = v + (y - top) * step + x - left;
                        const float e = window(s, &area, low, high, y, x, u, a + k * weights, c,
                                               k == 0 ? &square : NULL);
                        if (k == 0) *own = sqrtf(square);
                        TELL(WRITE_US, 1), TELL(OPERATIONS, 5);
                        us[(k * s->out + y) * s->out + x] =
                            fmaxf(e - theta * *own, 0.0f) / (*own + silence[k]);
                    }
}
