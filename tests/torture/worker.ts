/** A life in a worker of a browser. The page passes on what it tells. */

import { opfs } from "varve";
import { live, type Order } from "./life.js";

const heard: Array<() => void> = [];

self.addEventListener("message", ({ data }: MessageEvent<Order | "heard">) => {
  if (data === "heard") return heard.shift()?.();
  void live(data, opfs(), (news) => {
    self.postMessage(news);
    // Nobody waits for an answer to an acknowledgement.
    if (news.acknowledged !== undefined) return Promise.resolve();
    return new Promise<void>((resolve) => heard.push(resolve));
  });
});
