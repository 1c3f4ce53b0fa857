/**
 * Types of the platform that the types of this package refer to. If a program has no types for them, as in Node for
 * those of pages, they are declared here as empty; otherwise the declarations merge. So a program compiles without the
 * library "DOM", too.
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

/** The part of `EventTarget` with which listeners are added. */
export interface Listened {
  addEventListener(type: string, listener: Listener | null, options?: boolean | object): void;
  removeEventListener(type: string, listener: Listener | null, options?: boolean | object): void;
  dispatchEvent(event: Event): boolean;
}

/** A listener for events. */
export type Listener = ((event: Event) => void) | { handleEvent(event: Event): void };
