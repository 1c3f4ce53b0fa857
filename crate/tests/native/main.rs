//! The API for native programs: files with locks, collections, databases in memory.

mod changes;
mod collections;
mod expiry;
mod history;
mod indexes;
mod iteration;
mod json_lines;
mod locks;
mod read_only;
mod reader;
mod snapshots;
mod stores;
mod temp_folder;
mod undo;
mod updates;
mod versions;
