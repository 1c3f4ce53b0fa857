/** Unique identifiers for generated code. */

/** Assigns names that are unique in a file. */
export class Names {
  readonly #taken: Set<string>;

  constructor(reserved: Iterable<string> = []) {
    this.#taken = new Set(reserved);
  }

  /** The first of these names that is free, or the last of them with a number. */
  take(...wanted: readonly [string, ...string[]]): string {
    const free = wanted.find((name) => !this.#taken.has(name));
    const last = wanted.at(-1) ?? wanted[0];
    let name = free ?? last;
    for (let number = 2; this.#taken.has(name); number += 1) name = `${last}${number}`;
    this.#taken.add(name);
    return name;
  }
}

/** Splits a name into words: `createdAt`, `created_at` and `created at` have the same words. */
function words(name: string): string[] {
  return name
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
    .split(/[^A-Za-z\d]+/)
    .filter((word) => word !== "");
}

/** The name in the form of a type: `OrderLine`. */
export function pascal(name: string): string {
  const joined = words(name)
    .map((word) => `${word[0]?.toUpperCase()}${word.slice(1)}`)
    .join("");
  return startingWithLetter(joined, "T");
}

/** The name in the form of a field in Rust: `created_at`. */
export function snake(name: string): string {
  // A single underscore is not an identifier.
  const kept = name.startsWith("_") ? "_" : "";
  return startingWithLetter(`${kept}${words(name).join("_").toLowerCase()}`, "field");
}

/** Prefixes a name that does not start with a letter. */
function startingWithLetter(name: string, otherwise: string): string {
  if (/^_*$/.test(name)) return otherwise;
  return /^\d/.test(name) ? `_${name}` : name;
}
