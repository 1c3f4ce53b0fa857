import { Worker as Thread } from "node:worker_threads";
import { connect, type WorkerLike } from "varve";
import { describe, expect, onTestFinished, test } from "vitest";
import { rejects } from "../support/errors.js";

describe("connect on a server", () => {
  test("connect returns at once, and calls reject because there is no worker", async () => {
    const client = connect("shop");
    expect(client.status.state).toBe("idle");
    await rejects(client.get("yeezy"), {
      code: "VARVE_STORAGE_UNAVAILABLE",
      message: /On a server use open\(\)/,
    });
    await rejects(client.ready, { code: "VARVE_STORAGE_UNAVAILABLE" });
    await client.close();
  });

  test("connect makes no worker before a call", async () => {
    let made = 0;
    const client = connect("shop", {
      worker() {
        made += 1;
        throw new Error("no Worker here");
      },
    });
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(made).toBe(0);
    await rejects(client.get("yeezy"), { code: "VARVE_STORAGE_UNAVAILABLE", cause: true });
    expect(made).toBe(1);
    await client.close();
  });

  test("connect refuses objects that are no workers of a page, and says what to use", async () => {
    const thread = new Thread("setInterval(() => {}, 1000);", { eval: true });
    onTestFinished(async () => {
      await thread.terminate();
    });
    for (const made of [thread, null, undefined, {}]) {
      const client = connect("shop", { worker: () => made as unknown as WorkerLike });
      await rejects(client.get("yeezy"), {
        code: "VARVE_STORAGE_UNAVAILABLE",
        message: /option worker is .* a port of serve\(…\)\.listen\(\) in threads/,
        cause: true,
      });
      await client.close();
    }
  });
});
