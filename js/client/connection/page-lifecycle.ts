/** The page lifecycle: ending, the back/forward cache, freezing, and resuming. */

import { timeSlice } from "../../util/clock.js";

/** The most readings of a clock that does not advance: they take longer than the time to be waited. */
const MAX_CLOCK_READS = 10_000_000;

/** Reacts to the page lifecycle. */
export interface PageListener {
  /** Called when the page ends, or when it and its workers are suspended. */
  suspend(): void;
  resume(): void;
}

/** Listens to the page's events, if there is a page. Returns a function that stops listening. */
export function onPageLifecycle(listener: PageListener): () => void {
  if (typeof document === "undefined") return () => {};
  const end = new AbortController();
  const suspend = () => listener.suspend();
  // Runs after the program's own listeners, which may make their last requests: those run before a page
  // freezes, and before a visible page is hidden.
  const hide = ({ persisted }: Partial<PageTransitionEvent>) => {
    if (persisted && "onfreeze" in document) return;
    if (persisted || document.hidden) suspend();
    else document.addEventListener("visibilitychange", suspend, end);
  };
  const hideLast = () => {
    removeEventListener("pagehide", hide);
    addEventListener("pagehide", hide, end);
  };
  hideLast();
  document.addEventListener("visibilitychange", hideLast, end);
  addEventListener("pageshow", () => listener.resume(), end);
  document.addEventListener("freeze", suspend, end);
  document.addEventListener("resume", () => listener.resume(), end);
  return () => end.abort();
}

/**
 * Waits synchronously. The worker runs meanwhile, and ends or is suspended once the page's listeners return.
 */
export function busyWait(ms: number): void {
  for (const isOver = timeSlice(ms, MAX_CLOCK_READS); !isOver(); );
}
