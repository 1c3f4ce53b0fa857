/** Conversion of database names to file names and back. A name is never a path. */

import { badArgument } from "../errors/index.js";

/** The longest file name without suffix that every file system accepts, with a lock file beside it. */
const MAX_NAME_BYTES = 200;

/** The suffix of database files. */
export const SUFFIX = ".varve";

/** The additional suffix of a shadow file, in which the replacement of a database is made. */
export const SHADOW_SUFFIX = ".next";

/**
 * The file name of a database. Lower-case ASCII letters, digits, "-" and "_" are unchanged,
 * and "." does anywhere but in front; every other byte of the name's UTF-8 becomes %XX. So two names
 * never share a file, not even where the file system ignores case or normalizes Unicode, and none
 * leaves its folder.
 *
 * A name that looks like a path or a file is refused, because a folder is probably meant. A database that has such a
 * name all the same is opened by its file name: `%2E%2Fdata%2Fshop.varve`.
 *
 * @param storageIn gives the source text of the storage of a folder, if there is one
 * @throws TypeError if the name is not a string, is empty, looks like a path or a file, contains a lone
 * surrogate, or is longer than 200 bytes in this form
 */
export function fileName(name: string, storageIn?: (folder: string) => string): string {
  if (isMisleading(name)) {
    const inside = unescaped(name);
    if (inside !== undefined && isMisleading(inside)) return name;
    throw badArgument(advice(name, escapeName(name, "database name") + SUFFIX, storageIn));
  }
  return escapeName(name, "database name") + SUFFIX;
}

/** Whether a name looks like a path or a file. */
function isMisleading(name: string): boolean {
  return typeof name === "string" && /[/\\]|^\.\.?$|\.varve$/i.test(name);
}

function advice(name: string, file: string, storageIn?: (folder: string) => string): string {
  const [, folder, stem] = /^(?:(.*)[/\\])?(?!\.\.?$)([^/\\]+?)(?:\.varve)*$/is.exec(name) ?? [
    "",
    name.replace(/[/\\]+$/, ""),
  ];
  const suggestion = `the name ${JSON.stringify(stem ?? "shop")}`;
  const where =
    folder === undefined || storageIn === undefined
      ? ""
      : ` and the option storage: ${storageIn(folder || "/")}`;
  return (
    `A database's name is no path and has no ".varve" at its end. For ${JSON.stringify(name)} give ` +
    `${suggestion}${where}. (A file that was made under this name goes by ${JSON.stringify(file)}.)`
  );
}

/** Decodes a file name; `undefined` if it is not that of a database. */
function unescaped(file: string): string | undefined {
  if (!file.endsWith(SUFFIX)) return undefined;
  try {
    const name = decodeURIComponent(file.slice(0, -SUFFIX.length));
    // A file name with another escaping was not written by varve.
    return escapeName(name, "database name") + SUFFIX === file ? name : undefined;
  } catch {
    return undefined;
  }
}

/** The name with which the database in this file is opened; `undefined` if it is not the file of a database. */
export function nameOf(file: string): string | undefined {
  const name = unescaped(file);
  return name !== undefined && isMisleading(name) ? file : name;
}

/** The names of all databases among these files. */
export function namesOf(files: Iterable<string>): string[] {
  return Array.from(files, nameOf).filter((name) => name !== undefined);
}

/** Escapes one name or folder. `what` names it in messages. */
export function escapeName(name: string, what: string): string {
  if (typeof name !== "string") throw badArgument(`A ${what} must be a string.`, name);
  if (name === "") throw badArgument(`A ${what} must not be empty.`);
  let escaped = "";
  for (const character of name) {
    if (/^[a-z0-9_-]$/.test(character) || (character === "." && escaped !== "")) {
      escaped += character;
    } else {
      escaped += percent(character, name, what);
    }
  }
  if (escaped.length > MAX_NAME_BYTES) {
    throw badArgument(
      `A ${what} may take at most ${MAX_NAME_BYTES} bytes; this one takes ${escaped.length}. ` +
        "(Characters other than a-z, 0-9, dash, underscore and dot count three per byte.)",
      name,
    );
  }
  return escaped;
}

function percent(character: string, name: string, what: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (code >= 0xd800 && code <= 0xdfff) {
    throw badArgument(`A ${what} must not contain a lone surrogate.`, name);
  }
  // Not encodeURIComponent, which leaves A-Z and some punctuation unescaped.
  if (code < 0x80) return `%${code.toString(16).toUpperCase().padStart(2, "0")}`;
  return encodeURIComponent(character);
}
