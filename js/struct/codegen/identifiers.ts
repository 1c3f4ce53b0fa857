/** Names for what a schema is printed as: those of a language, each given once. */

/** Gives out names that nothing else of one file has. */
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

/** The words of a name: `createdAt`, `created_at` and `created at` have the same. */
function words(name: string): string[] {
  return name
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
    .split(/[^A-Za-z\d]+/)
    .filter((word) => word !== "");
}

/** The name as a type has it: `OrderLine`. */
export function pascal(name: string): string {
  const joined = words(name)
    .map((word) => `${word[0]?.toUpperCase()}${word.slice(1)}`)
    .join("");
  return leading(joined, "T");
}

/** The name as a field has it in Rust: `created_at`. */
export function snake(name: string): string {
  // A lone underscore is no name.
  const kept = name.startsWith("_") ? "_" : "";
  return leading(`${kept}${words(name).join("_").toLowerCase()}`, "field");
}

/** A name that begins as names do. */
function leading(name: string, otherwise: string): string {
  if (/^_*$/.test(name)) return otherwise;
  return /^\d/.test(name) ? `_${name}` : name;
}
