/** Opens a database file for reading. */

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

/** How to open a file. */
interface Opening {
  /** Whether key order is needed, which takes reading all records. */
  readonly ordered: boolean;
  /** How to handle damage. Without it, damage is an error. */
  readonly recovery?: "salvage";
}

/**
 * Opens the file at this path read-only, passes it to `use`, and closes it. The file stays the same byte for byte, and
 * no other file is left beside it.
 */
export async function inspectFile<T>(
  path: string,
  { ordered, recovery }: Opening,
  use: (db: Database) => T | Promise<T>,
): Promise<T> {
  refuseSpecialFile(path);
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

/** Rewrites messages of the package, which name databases and options, in terms of paths and commands. */
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

/** Refuses anything but a regular file, because opening it might block. */
export function refuseSpecialFile(path: string): void {
  let isFile: boolean;
  try {
    isFile = statSync(path).isFile();
  } catch (error) {
    if (codeOf(error) === "ENOENT") throw missing(path);
    throw unreadable(path, error);
  }
  if (!isFile) throw new Failure(EXIT.unreadable, `${path} is not a regular file.`);
}

/** The name by which a program opens the database in this file. */
function missing(path: string): Failure {
  const file = `${path}.varve`;
  const hint = existsSync(file) ? ` Did you mean ${file}?` : "";
  return new Failure(EXIT.unreadable, `There is no file ${path}.${hint}`);
}

function unreadable(path: string, error: unknown): Failure {
  const reason = error instanceof Error ? error.message : String(error);
  return new Failure(EXIT.unreadable, `${path} cannot be read: ${reason}.`);
}
