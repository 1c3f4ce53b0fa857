//! The engine against crashes, faults, damage, a model, and the defects of its ancestor.

mod crash;
mod faults;
mod files;
mod flips;
mod graus;
mod model;
mod support;
