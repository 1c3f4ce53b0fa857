/** How the engine gives a segment of the log: parts of a walk, and the records in them (`log_walk.rs`, `format/record.rs`). */

/** A part is this many numbers of 4 bytes. */
export const PART = 6;

/** Kinds of parts. 0: a transaction begins. */
export const MOVED = 1;
/** The transaction, or what was moved, goes on in this part. */
export const CONTINUATION = 2;
export const GAP = 3;
export const DAMAGE = 4;

/** Kinds of records. 1: a key was set to a value in the record itself. */
export const DELETE = 2;
export const EXTENT = 3;
export const CHUNKED = 4;
export const CLEAR = 5;

export const TWO_32 = 2 ** 32;
