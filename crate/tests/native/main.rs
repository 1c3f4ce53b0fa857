//! The API for native programs: files with locks, collections, databases in memory.

mod collections;
mod folder;
mod indexes;
mod locks;
mod reader;
mod stores;
mod versions;
