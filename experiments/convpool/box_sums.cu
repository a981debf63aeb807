// The steps around a library's convolution or matrix product, for convolution with average pooling:
//   box_sums   means of BOX x BOX neighbouring inputs, at every place: what the filter then sees at
//              stride BOX. Bound by memory: a thread walks down a column and reads each row once for
//              BOX rows of means.
//   gather     the rows of a matrix product: for each output, its window of KSIZE x KSIZE means (BOX
//              1: inputs), taps first, then channels.
// Maps are (picture, row, column, channel), channels a multiple of 16 bytes.
#include "units.cuh"

#define ROWS 8

DEVICE uint4 read_unit(const uint4* x, int row, int column, int height, int width, int units) {
    const bool inside = (u32)row < (u32)height && (u32)column < (u32)width;
    const uint4 nothing = make_uint4(0, 0, 0, 0);
    return inside ? x[((u64)row * width + column) * units] : nothing;
}

// x (batch, height, width, channels), out (batch, height + 2 padding - BOX + 1, ..., channels).
KERNEL(256)
box_sums(const map_t* __restrict__ x, map_t* __restrict__ out, int batch, int height, int width,
         int channels, int padding) {
    const u32 units = channels / VALUES;
    const u32 out_height = height + 2 * padding - BOX + 1, out_width = width + 2 * padding - BOX + 1;
    const u32 bands = (out_height + ROWS - 1) / ROWS;
    const u32 item = blockIdx.x * 256 + threadIdx.x;
    const u32 place = item / units, strip = place / out_width;
    const u32 unit = item % units, column = place % out_width, band = strip % bands;
    const u64 picture = strip / bands;
    if (picture >= (u32)batch) return;
    const uint4* const from = (const uint4*)x + picture * height * width * units + unit;
    uint4* const to =
        (uint4*)out + ((picture * out_height + band * ROWS) * out_width + column) * units + unit;
    float line[BOX][VALUES];
    UNROLL for (int r = 0; r < ROWS + BOX - 1; r++) {
        UNROLL for (int b = 0; b < BOX; b++)
            add_unit(line[r % BOX], read_unit(from, (int)(band * ROWS) + r - padding,
                                              (int)column + b - padding, height, width, units), b == 0);
        if (r < BOX - 1 || band * ROWS + r - (BOX - 1) >= out_height) continue;
        float sum[VALUES] = {};
        UNROLL for (int b = 0; b < BOX; b++)
            UNROLL for (int i = 0; i < VALUES; i++) sum[i] += line[b][i];
        to[(u64)(r - (BOX - 1)) * out_width * units] = unit_of(sum, 1.0f / (BOX * BOX));
    }
}

#ifdef KSIZE
// out (batch out_height out_width, KSIZE KSIZE channels); stride of the windows STRIDE. Blocks along y
// are taps.
KERNEL(256)
gather(const map_t* __restrict__ x, map_t* __restrict__ out, int batch, int height, int width,
       int channels, int out_height, int out_width, int padding) {
    const u32 units = channels / VALUES, tap = blockIdx.y;
    const u32 item = blockIdx.x * 256 + threadIdx.x;
    const u32 unit = item % units, cell = item / units, line = cell / (u32)out_width;
    const u64 picture = line / (u32)out_height;
    if (picture >= (u32)batch) return;
    const int row = line % (u32)out_height * STRIDE + tap / KSIZE - padding;
    const int column = cell % (u32)out_width * STRIDE + tap % KSIZE - padding;
    const uint4* const from = (const uint4*)x + picture * height * width * units + unit;
    float sum[VALUES] = {};
    UNROLL for (int i = 0; i < BOX; i++)
        UNROLL for (int j = 0; j < BOX; j++)
            add_unit(sum, read_unit(from, row + i, column + j, height, width, units));
    ((uint4*)out)[((u64)cell * (KSIZE * KSIZE) + tap) * units + unit] =
        unit_of(sum, 1.0f / (BOX * BOX));
}
#endif
