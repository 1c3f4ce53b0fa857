/** A writer in a worker of a browser. The page forwards its reports. */

import { opfs } from "varve";
import { type Order, runWriter } from "./writer.js";

const awaitingReceipt: Array<() => void> = [];

self.addEventListener("message", ({ data }: MessageEvent<Order | "received">) => {
  if (data === "received") return awaitingReceipt.shift()?.();
  void runWriter(data, opfs(), (report) => {
    self.postMessage(report);
    // The page confirms every report except an acknowledgement.
    if (report.acknowledged !== undefined) return Promise.resolve();
    return new Promise<void>((resolve) => awaitingReceipt.push(resolve));
  });
});
