import { Worker as Thread } from "node:worker_threads";
import { connect, type WorkerLike } from "varve";
import { cleanup, equal, rejects, suite, test } from "../harness.js";

suite("connect on a server", () => {
  test("connect returns at once, and calls reject because there is no worker", async () => {
    const client = connect("shop");
    equal(client.status.state, "idle");
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
    equal(made, 0);
    await rejects(client.get("yeezy"), { code: "VARVE_STORAGE_UNAVAILABLE", cause: true });
    equal(made, 1);
    await client.close();
  });

  test("connect refuses objects that are no workers of a page, and says what to use", async () => {
    const thread = new Thread("setInterval(() => {}, 1000);", { eval: true });
    cleanup(() => thread.terminate());
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
