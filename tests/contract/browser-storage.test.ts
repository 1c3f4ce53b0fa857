import { file, memory, open, opfs, type Persistence, persist } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { turn } from "../support/values.js";
import { freshName, opened } from "./storages.js";

/** Replaces a global until the test ends. */
function pretend(name: string, value: unknown): void {
  const before = Object.getOwnPropertyDescriptor(globalThis, name);
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  onTestFinished(() => {
    if (before !== undefined) Object.defineProperty(globalThis, name, before);
    else Reflect.deleteProperty(globalThis, name);
  });
}

/** Makes this realm look like a dedicated worker whose browser has this `navigator.storage`. */
function pretendBrowser(storage: object): void {
  class WithSyncAccess {
    createSyncAccessHandle(): void {}
  }
  pretend("FileSystemFileHandle", WithSyncAccess);
  pretend("isSecureContext", true);
  pretend("navigator", { storage });
}

function fails(name: string, message = "on purpose"): () => Promise<never> {
  return () => Promise.reject(new DOMException(message, name));
}

const UNAVAILABLE = { name: "StorageUnavailableError", code: "VARVE_STORAGE_UNAVAILABLE" };

describe("browsers that refuse storage", () => {
  const kinds: Record<string, RegExp> = {
    SecurityError: /private windows.*sandboxed/,
    NotAllowedError: /private windows.*sandboxed/,
    UnknownError: /private windows/,
    InvalidStateError: /needs repair/,
  };
  for (const [kind, advice] of Object.entries(kinds)) {
    test(`${kind}: the error gives the reason and suggests memory(), which is not used unasked`, async () => {
      pretendBrowser({ getDirectory: fails(kind) });
      for (const opening of [open("shop"), open("shop", { storage: opfs("folder") })]) {
        const error = await rejects(opening, { ...UNAVAILABLE, message: advice, cause: true });
        assert(error.message.includes("on purpose"), error.message);
        assert(error.message.includes("memory()"), error.message);
      }
    });
  }

  test("listing and removing are refused in the same way, and the error says what was refused", async () => {
    pretendBrowser({ getDirectory: fails("SecurityError") });
    const storage = opfs();
    await rejects(async () => storage.databases?.(), {
      ...UNAVAILABLE,
      message: /be listed.*memory/,
    });
    await rejects(async () => storage.destroy?.("shop"), {
      ...UNAVAILABLE,
      message: /"shop" cannot be removed.*memory/,
    });
  });

  test("an unknown error of a full origin is reported as a lack of space", async () => {
    const handle = { createSyncAccessHandle: fails("UnknownError") };
    const folder = { getFileHandle: async () => handle };
    const files = { getDirectory: async () => folder };
    const left = (bytes: number) => async () => ({ usage: 5e6, quota: 5e6 + bytes });
    pretendBrowser({ ...files, estimate: left(100_000) });
    await rejects(open("shop"), { code: "VARVE_QUOTA_EXCEEDED", cause: true });
    for (const estimate of [left(2e6), fails("TypeError"), undefined]) {
      pretendBrowser({ ...files, estimate });
      await rejects(open("shop"), { ...UNAVAILABLE, message: /on a full disk/ });
    }
  });

  test("a lack of space has its own error", async () => {
    pretendBrowser({ getDirectory: fails("QuotaExceededError") });
    await rejects(open("shop"), {
      name: "QuotaExceededError",
      message: /share of the disk is full/,
      cause: true,
    });
  });
});

describe("realms without synchronous files", () => {
  /** Makes this realm look like one without OPFS and Node's files. */
  async function pretendNoFiles(): Promise<void> {
    // A message of Vitest leaves work for the end of this task that needs the global `process`.
    await turn();
    for (const name of ["navigator", "FileSystemFileHandle", "process"]) pretend(name, undefined);
  }

  /** Makes this realm look like one with these globals, and without OPFS and Node's files. */
  async function refusal(globals: Record<string, unknown>): Promise<string> {
    await pretendNoFiles();
    pretend("isSecureContext", true);
    for (const [name, value] of Object.entries(globals)) pretend(name, value);
    const opening = open("shop", { storage: opfs() });
    const { message } = await rejects(opening, UNAVAILABLE);
    expect((await rejects(open("shop"), UNAVAILABLE)).message, "by default, the same").toBe(
      message,
    );
    return message;
  }

  test("the error on a page names connect(), workers and memory()", async () => {
    const message = await refusal({ document: {} });
    assert(/main thread.*connect\(\).*dedicated worker.*memory\(\)/.test(message), message);
  });

  test("the error in a service or shared worker names connect() and memory()", async () => {
    for (const scope of ["ServiceWorkerGlobalScope", "SharedWorkerGlobalScope"]) {
      const message = await refusal({ document: undefined, [scope]: class {} });
      assert(/Shared and service workers.*connect\(\).*memory\(\)/.test(message), message);
    }
  });

  test("the error of an insecure origin says so, and names memory()", async () => {
    for (const document of [undefined, {}]) {
      const message = await refusal({ document, isSecureContext: false });
      assert(/secure origins.*https.*memory\(\)/.test(message), message);
    }
  });

  test("the error of an old browser says which versions work, and names memory()", async () => {
    const message = await refusal({ document: undefined });
    assert(/Chrome 102.*file\(\).*memory\(\)/.test(message), message);
  });

  test("memory() works on request", async () => {
    await pretendNoFiles();
    const db = await opened(memory());
    db.set("key", "value");
    expect(db.getText("key")).toBe("value");
  });
});

describe("persist", () => {
  interface Manager {
    persisted?: () => Promise<boolean>;
    persist?: () => Promise<boolean>;
  }

  function asked(manager: Manager): Promise<Persistence> {
    pretendBrowser({ getDirectory: fails("SecurityError"), ...manager });
    return persist();
  }

  const yes = async () => true;
  const no = async () => false;

  test("persist returns granted if the browser grants it, or has before", async () => {
    expect(await asked({ persisted: no, persist: yes })).toBe("granted");
    expect(await asked({ persisted: yes, persist: fails("NotAllowedError") })).toBe("granted");
  });

  test("persist returns refused if the browser refuses, or cannot grant it", async () => {
    expect(await asked({ persisted: no, persist: no })).toBe("refused");
    pretend("document", {});
    expect(await asked({ persisted: no })).toBe("refused");
    expect(await asked({})).toBe("refused");
  });

  test("persist in a worker throws, unless it was granted before", async () => {
    pretend("document", undefined);
    expect(await asked({ persisted: yes })).toBe("granted");
    await rejects(asked({ persisted: no }), { ...UNAVAILABLE, message: /page's main thread/ });
  });

  test("persist throws if the browser cannot be asked", async () => {
    await rejects(asked({ persisted: fails("TypeError") }), {
      ...UNAVAILABLE,
      message: /on purpose.*memory\(\)/,
      cause: true,
    });
  });

  test("persist does not apply to memory and files", async () => {
    expect(await persist({ storage: memory() })).toBe("not-applicable");
    expect(await persist({ storage: file("somewhere") })).toBe("not-applicable");
    if (context().directory !== undefined) expect(await persist()).toBe("not-applicable");
  });

  test("persist refuses invalid options", async () => {
    await rejects(persist({ storage: "opfs" } as unknown as Parameters<typeof persist>[0]), {
      name: "TypeError",
      message: /storage/,
    });
    await rejects(persist({ force: true } as Parameters<typeof persist>[0]), {
      name: "TypeError",
      message: /no option "force"/,
    });
  });
});

describe("storage estimates", () => {
  test("memory has no estimate", async () => {
    const { usage, quota, persisted } = (await opened(memory())).stats();
    expect(usage).toBe(undefined);
    expect(quota).toBe(undefined);
    expect(persisted).toBe(undefined);
  });

  const { directory } = context();
  if (directory !== undefined) {
    test("on a disk the estimate is the file and the free space, as of now", async () => {
      const db = await opened(file(directory), {}, freshName());
      db.set("key", new Uint8Array(200_000));
      db.commit();
      const { usage, quota, persisted, fileBytes } = db.stats();
      expect(usage).toBe(fileBytes);
      assert(quota !== undefined && quota > fileBytes, `${quota} bytes`);
      expect(persisted).toBe(undefined);
    });
  }

  /** A browser whose files are in memory, with this storage estimate. */
  function pretendEstimate(answers: {
    estimate?: () => Promise<{ usage: number; quota: number }>;
    persisted?: () => Promise<boolean>;
  }): void {
    const files = memory();
    const handle = { createSyncAccessHandle: async () => (await files.open("file")).file };
    pretendBrowser({
      getDirectory: async () => ({ getFileHandle: async () => handle }),
      ...answers,
    });
  }

  test("in a browser the estimate is the last one reported; each call asks again", async () => {
    let reported = 0;
    pretendEstimate({
      estimate: async () => {
        reported += 1_000;
        return { usage: reported, quota: 5_000 };
      },
      persisted: async () => reported > 1_000,
    });
    const db = await opened(opfs());
    await turn();
    expect(reported, "asked once, at opening").toBe(1_000);
    const { usage, quota, persisted } = db.stats();
    expect(`${usage} ${quota} ${persisted}`).toBe("1000 5000 false");
    await turn();
    expect(db.stats().usage).toBe(2_000);
    expect(db.stats().persisted).toBe(true);
    await turn();
    expect(reported, "once, however often it is looked at until then").toBe(3_000);
  });

  test("a browser without an estimate causes no failure", async () => {
    pretendEstimate({ estimate: fails("TypeError"), persisted: async () => true });
    const db = await opened(opfs());
    await turn();
    expect(db.stats().quota).toBe(undefined);
    pretendEstimate({});
    const other = await opened(opfs());
    await turn();
    expect(other.stats().usage).toBe(undefined);
    other.set("key", "value");
    expect(other.getText("key")).toBe("value");
  });
});
