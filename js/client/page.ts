/** What a page goes through: it hides for good, is kept for going back to, freezes, and wakes. */

/** What a client does about it. */
export interface Sleeper {
  /** The page ends; or it sleeps and may wake, and its worker sleeps with it, with all that it has. */
  sleep(mayWake: boolean): void;
  wake(): void;
}

/** Listens to the page, if there is one, and gives a function that ends it. */
export function followPage(sleeper: Sleeper): () => void {
  if (typeof document === "undefined") return () => {};
  const hide = ({ persisted }: Partial<PageTransitionEvent>) => sleeper.sleep(persisted === true);
  const freeze = () => sleeper.sleep(true);
  const wake = () => sleeper.wake();
  const listeners: [EventTarget, string, (event: Event) => void][] = [
    [window, "pagehide", hide],
    [window, "pageshow", wake],
    [document, "freeze", freeze],
    [document, "resume", wake],
  ];
  for (const [target, event, listener] of listeners) target.addEventListener(event, listener);
  return () => {
    for (const [target, event, listener] of listeners) target.removeEventListener(event, listener);
  };
}
