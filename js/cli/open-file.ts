/** A database file, opened to be looked at. */

import { existsSync, statSync } from "node:fs";
import {
  CorruptionError,
  type Database,
  DatabaseNotFoundError,
  open,
  UnsupportedFormatError,
} from "../index.js";
import { fileAt } from "../storage/node/index.js";
import { codeOf, EXIT, Failure, Progress } from "./output.js";

/** How a file is to be opened. */
interface Opening {
  /** Whether keys are wanted in order, which takes reading all records. */
  readonly ordered: boolean;
  /** What to do about damage. Left out, it is refused. */
  readonly recovery?: "salvage";
}

/**
 * Opens the file at this path for reading only, gives it to `use`, and closes it. The file stays
 * byte for byte as it is, and nothing is left beside it.
 */
export async function look<T>(
  path: string,
  { ordered, recovery }: Opening,
  use: (db: Database) => T | Promise<T>,
): Promise<T> {
  refuseOther(path);
  const progress = new Progress(process.stderr);
  let db: Database;
  try {
    db = await open(path, {
      storage: fileAt(path),
      readOnly: true,
      ordered,
      recovery,
      onProgress: ({ bytes, total }) => progress.print("opening", bytes, total),
    });
  } catch (error) {
    throw openedByPath(path, error, recovery !== undefined);
  } finally {
    progress.end();
  }
  try {
    return await use(db);
  } finally {
    await db.close();
  }
}

/** The package speaks of names and options, and here are paths and commands. */
function openedByPath(path: string, error: unknown, isSalvage: boolean): unknown {
  if (error instanceof UnsupportedFormatError && error.reason === "not-a-database") {
    const hint = isSalvage ? "" : " If it was one, varve salvage copies what is left of it.";
    return new Failure(EXIT.unreadable, `${path} is not a varve database.${hint}`);
  }
  if (error instanceof DatabaseNotFoundError && statSync(path).size === 0) {
    return new Failure(EXIT.unreadable, `${path} is not a varve database: it is empty.`);
  }
  if (error instanceof CorruptionError && isSalvage) {
    return new Failure(EXIT.unreadable, `${path} is damaged, and nothing in it can be salvaged.`);
  }
  return error;
}

/** Anything but a file might make whoever opens it wait for ever. */
export function refuseOther(path: string): void {
  let isFile: boolean;
  try {
    isFile = statSync(path).isFile();
  } catch (error) {
    if (codeOf(error) === "ENOENT") throw missing(path);
    throw unreadable(path, error);
  }
  if (!isFile) throw new Failure(EXIT.unreadable, `${path} is not a regular file.`);
}

/** A program opens its database by a name, which is not yet the file's. */
function missing(path: string): Failure {
  const file = `${path}.varve`;
  const hint = existsSync(file) ? ` Did you mean ${file}?` : "";
  return new Failure(EXIT.unreadable, `There is no file ${path}.${hint}`);
}

function unreadable(path: string, error: unknown): Failure {
  const reason = error instanceof Error ? error.message : String(error);
  return new Failure(EXIT.unreadable, `${path} cannot be read: ${reason}.`);
}
