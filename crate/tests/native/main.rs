//! The API for native programs: files with locks, collections, databases in memory.

mod collections;
mod history;
mod indexes;
mod locks;
mod read_only;
mod reader;
mod stores;
mod temp_folder;
mod versions;
