//! Intel's tile registers (AMX): how they are shaped, and an emulator for tests.
//!
//! There are eight tiles of up to 16 rows of 64 bytes. A multiplication takes 16 cycles, whatever
//! the tiles hold: 1024 bf16 or 2048 int8 operations per cycle and core.

#[cfg(test)]
pub(crate) mod emulator;

/// The operand of LDTILECFG (palette 1): bytes per row and rows of each tile.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl TileConfig {
    /// Tiles 0–7 with these rows and bytes per row; a tile of zero rows is not used.
    pub(crate) fn new(tiles: [(usize, usize); 8]) -> Self {
        let mut config =
            Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        for (tile, (rows, row_bytes)) in tiles.into_iter().enumerate() {
            assert!(rows <= 16 && row_bytes <= 64, "a tile has at most 16 rows of 64 bytes");
            // An unused tile must have neither rows nor columns.
            let (rows, row_bytes) = if rows * row_bytes == 0 { (0, 0) } else { (rows, row_bytes) };
            (config.rows[tile], config.row_bytes[tile]) = (rows as u8, row_bytes as u16);
        }
        config
    }

    /// All eight tiles whole.
    pub(crate) fn whole() -> Self {
        Self::new([(16, 64); 8])
    }
}
