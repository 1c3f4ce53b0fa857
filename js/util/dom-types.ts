/**
 * What the types of this package name of the platform. Where a program has no types for it (that of Node
 * has none of the page), these are there, and empty; where it has, they are the same. So a program
 * compiles without the library "DOM" as well.
 */

declare global {
  interface AbortController {}
  interface AbortSignal {}
  interface Blob {}
  interface Event {}
  interface File {}
  interface MessagePort {}
  interface ReadableStream<R> {}
  interface Response {}
  interface TextEncoder {}
  interface URL {}

  namespace WebAssembly {
    interface Memory {}
    interface Module {}
  }
}

/** What listens to events as an `EventTarget` does. */
export interface Listened {
  addEventListener(type: string, listener: Listener | null, options?: boolean | object): void;
  removeEventListener(type: string, listener: Listener | null, options?: boolean | object): void;
  dispatchEvent(event: Event): boolean;
}

/** Who listens. */
export type Listener = ((event: Event) => void) | { handleEvent(event: Event): void };
