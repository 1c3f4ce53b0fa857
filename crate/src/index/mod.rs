//! Where records are: by key hash for points, by key for order.

pub mod hash_filter;
pub mod hash_index;
pub mod keyspaces;
pub mod ordered_index;
pub mod position_set;
pub mod sorted_vec_map;

/// The position of a record in units of 8 bytes from the first segment; 0 is not a valid position.
pub type Position = u32;
