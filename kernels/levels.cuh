// The sizes of a picture that the finder reads, and the tiles that its kernels deal them to.
#ifndef NEOCOG_LEVELS_CUH
#define NEOCOG_LEVELS_CUH
#include "platform.cuh"

struct Level {
    int byte, high, wide;   // the size's grey picture: where it begins, rows, columns
    int rows, columns;      // with what fills them up to multiples of 16; 0: this size is not read
    int cell;               // of its first pixel among those of all sizes
    int spare[2];
};
struct Tile {
    int first;              // place of the size's first one among those of all sizes
    int high, wide;         // rows and columns of the size, in places
    int top, left;          // of the tile
    int level;              // number of the size; -1: there is no such tile
};

// Tile `number` of all sizes, of high x wide places that are so many pixels apart.
DEVICE Tile tile_of(const Level* levels, int count, int number, int apart, int high, int wide) {
    for (int k = 0; k < count; k++) {
        const Level level = levels[k];
        const int rows = level.rows / apart, columns = level.columns / apart;
        const int across = (columns + wide - 1) / wide, tiles = across * ((rows + high - 1) / high);
        if (number < tiles) {
            const Tile tile = {level.cell / (apart * apart), rows, columns,
                               number / across * high, number % across * wide, k};
            return tile;
        }
        number -= tiles;
    }
    const Tile none = {0, 0, 0, 0, 0, -1};
    return none;
}
#endif
