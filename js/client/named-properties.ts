/** Objects whose properties a page cannot know: procedures and indexes are named in the worker's file alone. */

/** What languages, frameworks and assertion libraries look for in every object that they meet. */
const ASKED_OF_ALL = /^(then|toJSON|nodeType|tagName|asymmetricMatch|\$\$typeof|(__|@@).*)$/;

/** Makes what a property stands for when it is first read. There is none that is asked of every object. */
export function byName<T extends object>(make: (name: string) => object): T {
  const known = new Map<string, object>();
  return new Proxy(Object.create(null) as T, {
    get(_, name) {
      if (typeof name !== "string" || name in Object.prototype || ASKED_OF_ALL.test(name)) {
        return undefined;
      }
      let one = known.get(name);
      if (one === undefined) {
        one = make(name);
        known.set(name, one);
      }
      return one;
    },
  });
}

/** Gives an object properties that nobody meets who goes over it, as consoles, JSON and comparisons do. */
export function hide(of: object, parts: Readonly<Record<string, unknown>>): void {
  // Configurable, for proxies of frameworks, which give others for such values, may not do that otherwise.
  for (const [name, value] of Object.entries(parts)) {
    Object.defineProperty(of, name, { value, configurable: true });
  }
}
