/**
 * Objects whose property names a page cannot know: procedures and indexes are named in the worker's file
 * only.
 */

import { PROBED_PROPERTIES } from "../util/probed-properties.js";

/**
 * An object whose properties are made when they are first read, except for names that the platform and tools read on any
 * object.
 */
export function byName<T extends object>(make: (name: string) => object): T {
  const known = new Map<string, object>();
  return new Proxy(Object.create(null) as T, {
    get(_, name) {
      if (typeof name !== "string" || name in Object.prototype || PROBED_PROPERTIES.test(name)) {
        return undefined;
      }
      let value = known.get(name);
      if (value === undefined) {
        value = make(name);
        known.set(name, value);
      }
      return value;
    },
  });
}

/** Adds properties that are not enumerable, so that consoles, JSON and comparisons skip them. */
export function hide(target: object, parts: Readonly<Record<string, unknown>>): void {
  // Configurable, because the proxies of frameworks replace such values, which is not allowed otherwise.
  for (const [name, value] of Object.entries(parts)) {
    Object.defineProperty(target, name, { value, configurable: true });
  }
}
