/** What a page goes through: it hides for good, is kept for going back to, freezes, and wakes. */

/** What a worker needs at most to hand over, also where much else goes on. Nobody looks at the page then. */
const HAND_OVER_MS = 200;

/** What a client does about it. */
export interface Sleeper {
  /** Whether its worker is the owner, and has to hand over. */
  readonly owns: boolean;
  sleep(): void;
  wake(): void;
}

/** Listens to the page, if there is one, and gives a function that ends it. */
export function followPage(sleeper: Sleeper): () => void {
  if (typeof document === "undefined") return () => {};
  const sleep = () => sleeper.sleep();
  const wake = () => sleeper.wake();
  const freeze = () => {
    const { owns } = sleeper;
    sleeper.sleep();
    if (owns) hesitate();
  };
  const listeners: [EventTarget, string, () => void][] = [
    [window, "pagehide", sleep],
    [window, "pageshow", wake],
    [document, "freeze", freeze],
    [document, "resume", wake],
  ];
  for (const [target, event, listener] of listeners) target.addEventListener(event, listener);
  return () => {
    for (const [target, event, listener] of listeners) target.removeEventListener(event, listener);
  };
}

/** A worker freezes with its page, as soon as the page's listeners are done; until then it runs. */
function hesitate(): void {
  for (const until = Date.now() + HAND_OVER_MS; Date.now() < until; );
}
