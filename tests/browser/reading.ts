/** The handlers of a service worker that only reads bytes that a page sends. */

import { open } from "varve";

interface MessageToWorker extends MessageEvent {
  waitUntil(promise: Promise<unknown>): void;
}

/** Answers with the text of a key in the bytes of a message. */
export function read(): void {
  addEventListener("message", (event) => answer(event as MessageToWorker));
  addEventListener("install", () =>
    (globalThis as unknown as { skipWaiting(): void }).skipWaiting(),
  );
}

function answer(event: MessageToWorker): void {
  const { data, ports, waitUntil } = event;
  const { bytes, key } = data as { bytes: ArrayBuffer; key: string };
  const reading = open("image", { from: bytes, readOnly: true }).then((db) => db.getText(key));
  const reported = reading.then(
    (value) => ports[0]?.postMessage({ value }),
    ({ code, message }) => ports[0]?.postMessage({ error: { code, message } }),
  );
  waitUntil.call(event, reported);
}
