/** What a page goes through: it hides for good, is kept for going back to, freezes, and wakes. */

import { slice } from "../../util/clock.js";

/** The most looks at a clock that stands still: they take longer than the time to be waited. */
const LOOKS = 10_000_000;

/** What a client does about it. */
export interface PageListener {
  /** The page ends, or it sleeps and its worker with it, with all that it has. */
  suspend(): void;
  resume(): void;
}

/** Listens to the page, if there is one, and gives a function that ends it. */
export function onPageLifecycle(listener: PageListener): () => void {
  if (typeof document === "undefined") return () => {};
  const end = new AbortController();
  const suspend = () => listener.suspend();
  // Not before the program's own listeners have asked for what they want at the last moment: they run
  // before a page freezes, and before one that was seen is hidden.
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

/** A worker runs on beside the page's listeners, and ends or sleeps as soon as they are done. */
export function busyWait(ms: number): void {
  for (const isOver = slice(ms, LOOKS); !isOver(); );
}
