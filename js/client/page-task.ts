/**
 * Lets the page do other work, such as drawing and handling messages. Browsers slow timers down in hidden tabs, and
 * run what follows a `scheduler.yield()` before other messages.
 */
export function nextPageTask(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}
