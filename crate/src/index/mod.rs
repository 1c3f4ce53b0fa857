//! Where records are: by key hash for points, by key for order.

pub mod hash_filter;
pub mod hash_index;
pub mod keyspaces;
pub mod ordered_index;
pub mod position_set;
pub mod sorted_vec_map;
