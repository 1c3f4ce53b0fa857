//! Where records are: by key hash for points, by key for order.

pub mod hash;
pub mod ordered;
pub mod small;
pub mod spaces;
