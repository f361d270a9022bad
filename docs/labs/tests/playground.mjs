// The playground in a real browser, against servers of its own. `make playground-test` runs it: node tests/playground.mjs
// KEEP=1 takes the pictures of docs/serving.md anew.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { browser, difference } from "./site.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const root = fileURLToPath(new URL("../../../", import.meta.url));
const python = process.env.PYTHON ?? `${root}.venv/bin/python`;
const failures = [];
let passed = 0;

/** A server of its own: its address and its process. */
async function start(...command) {
  const child = spawn(python, command, { cwd: root, env: { ...process.env, OMP_NUM_THREADS: "1" }, stdio: ["ignore", "ignore", "pipe"] });
  const said = [];
  for await (const line of createInterface({ input: child.stderr })) {
    said.push(line);
    const found = /^serving \S+ at (http:\S+)/.exec(line);
    if (found) {
      child.stderr.resume();
      return { address: found[1], child };
    }
  }
  throw new Error(`no server:\n${said.join("\n")}`);
}

async function check(name, run) {
  try {
    await run();
    passed++;
  } catch (error) {
    failures.push(name);
    console.error(`FAILED ${name}\n  ${error.message.split("\n").slice(0, 12).join("\n  ")}`);
  }
}

const healthy = await start("-m", "hymo", "serve", "demo", "--port", "0");
const faulty = await start("docs/labs/tests/playground_server.py");
const chrome = await browser();

/** A page that remembers what it asked for and what went wrong. */
async function open(address, options = {}) {
  const context = await chrome.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light", ...options });
  const page = await context.newPage();
  const seen = { foreign: [], errors: [] };
  context.on("request", (request) => !/^(data|blob):/.test(request.url()) && !request.url().startsWith(address) && seen.foreign.push(request.url()));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && !/status of (400|429|500)|ERR_/.test(message.text()) && seen.errors.push(message.text()));
  await page.goto(address, { waitUntil: "networkidle" });
  return { context, page, seen };
}

async function closed({ context, seen }) {
  assert.deepEqual(seen.foreign, [], "requests to other origins");
  assert.deepEqual(seen.errors, [], "errors on the page");
  await context.close();
}

const state = (page, text) => page.waitForFunction((t) => document.querySelector("#state").textContent === t, text);
const count = (page) => page.locator("#output .token").count();
const text = (page) => page.locator("#output").evaluate((e) => [...e.querySelectorAll(".token")].map((t) => t.textContent).join(""));
const problem = (page) => page.locator("#problem").textContent();

/** Wait until a server's metric has a value. */
async function metric(address, name, value) {
  for (let i = 0; i < 100; i++) {
    const found = new RegExp(`^${name} (\\S+)$`, "m").exec(await (await fetch(`${address}/metrics`)).text());
    if (found && Number(found[1]) === value) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail(`${name} does not become ${value}`);
}

async function ask(page, prompt, settings = {}) {
  await page.fill("#prompt", prompt);
  await page.fill("#seed", "7");
  for (const [name, value] of Object.entries(settings)) {
    if (name === "speculative") await page.selectOption("#speculative", value);
    else await page.fill(`#${name}`, String(value));
  }
  await page.click("#go");
}

async function serious(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(" ")).slice(0, 3).join(", ")}`);
}

/** Tell axe and the ruler that the page is in order, in the state that it is in. */
async function inOrder(page, width) {
  assert.deepEqual(await serious(page), [], "axe");
  const [scrolled, shown] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.equal(shown, width);
  assert.ok(scrolled <= shown, `${scrolled} pixels wide on a screen of ${shown}`);
}

const body = { model: "demo", prompt: "The SQLite ", max_tokens: 120, temperature: 0.8, top_p: 0.95, seed: 7, speculative: true, tokens: true, logprobs: 5 };
const answer = await (await fetch(`${healthy.address}/v1/completions`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) })).json();
const expected = answer.choices[0];

await check("a prompt goes in, its text streams out, drafts in their colour", async () => {
  const it = await open(healthy.address);
  const { page } = it;
  assert.match(await page.textContent("#about"), /Model demo, context 1024 tokens/);
  await page.evaluate(() => {
    window.sizes = [];
    new MutationObserver(() => window.sizes.push(document.querySelectorAll("#output .token").length)).observe(document.querySelector("#output"), { childList: true });
  });
  await ask(page, "The SQLite ", { max_tokens: 120, speculative: "true" });
  await state(page, "Done.");
  const sizes = await page.evaluate(() => window.sizes);
  assert.ok(new Set(sizes).size > 10, `the text came in ${new Set(sizes).size} pieces`);
  assert.equal(await text(page), expected.text);
  const marks = await page.locator("#output .token").evaluateAll((all) => all.map((t) => t.classList.contains("drafted")));
  assert.deepEqual(marks, expected.tokens.map((t) => t.drafted));
  assert.ok(marks.includes(true) && marks.includes(false));
  const paint = (selector) => page.locator(selector).first().evaluate((e) => getComputedStyle(e).backgroundColor + getComputedStyle(e).borderBottomWidth);
  assert.notEqual(await paint("#output .token.drafted"), await paint("#output .token:not(.drafted)"));
  assert.equal(await paint("#output .token.drafted"), await paint(".key .drafted"), "the key has another colour");
  assert.equal(await page.textContent("#f-tokens"), "120");
  assert.equal(await page.textContent("#f-drafted"), `${Math.round((100 * marks.filter(Boolean).length) / marks.length)} %`);
  assert.equal(await page.textContent("#f-reason"), "length");
  assert.ok(Number(await page.textContent("#f-rate")) > 0);
  await closed(it);
});

await check("by keyboard alone", async () => {
  const it = await open(healthy.address);
  const { page } = it;
  const tabTo = async (id) => {
    for (let i = 0; i < 30; i++) {
      await page.keyboard.press("Tab");
      if (await page.evaluate((name) => document.activeElement?.id === name, id)) return;
    }
    assert.fail(`Tab never reaches ${id}`);
  };
  await tabTo("prompt");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("The SQLite ");
  await tabTo("max_tokens");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("30");
  await page.keyboard.press("Enter");
  await state(page, "Done.");
  assert.equal(await count(page), 30);
  await tabTo("output");
  assert.notEqual(await page.locator("#output").evaluate((e) => getComputedStyle(e).outlineStyle), "none", "focus is not to be seen");
  for (const [key, place] of [["ArrowRight", 1], ["ArrowRight", 2], ["ArrowLeft", 1], ["End", 30], ["ArrowRight", 30], ["Home", 1]]) {
    await page.keyboard.press(key);
    assert.match(await page.textContent("#token"), new RegExp(`Token ${place} of 30`));
    assert.equal(await page.locator("#output .chosen").count(), 1);
  }
  assert.equal(await page.locator("#token tbody tr").count(), 5);
  await page.locator("#output .token").nth(4).hover();
  assert.match(await page.textContent("#token"), /Token 5 of 30/);
  await closed(it);
});

await check("the stop button, and Escape", async () => {
  const it = await open(faulty.address);
  const { page } = it;
  for (const stop of [() => page.click("#halt"), () => page.keyboard.press("Escape")]) {
    await ask(page, "The SQLite ", { max_tokens: 900 });
    await page.waitForFunction(() => document.querySelectorAll("#output .token").length > 5);
    assert.ok(await page.isDisabled("#go"));
    await stop();
    await state(page, "Stopped.");
    const kept = await count(page);
    assert.ok(kept > 5 && kept < 900);
    assert.equal(await problem(page), "");
    assert.ok(await page.isDisabled("#halt"));
    await metric(faulty.address, "hymo_active_texts", 0);
    assert.equal(await count(page), kept, "the text went on");
  }
  await closed(it);
});

await check("what the server refuses is shown, and what the browser can tell", async () => {
  const it = await open(healthy.address);
  const { page } = it;
  await ask(page, "The SQLite ", { max_tokens: 5000 });
  await state(page, "Refused.");
  assert.match(await problem(page), /exceed the context of 1024/);
  assert.ok(await page.isVisible("#problem"));
  await page.fill("#max_tokens", "0");
  await page.click("#go");
  assert.equal(await page.evaluate(() => document.activeElement.id), "max_tokens", "the field in question is not shown");
  await ask(page, "The SQLite ", { max_tokens: 5 });
  await state(page, "Done.");
  assert.equal(await problem(page), "", "the old problem stays");
  await closed(it);
});

await check("a full queue is said, and over when there is room", async () => {
  const all = [await open(faulty.address), await open(faulty.address), await open(faulty.address)];
  const [first, second, third] = all.map((it) => it.page);
  await ask(first, "The SQLite ", { max_tokens: 900 });
  await first.waitForFunction(() => document.querySelectorAll("#output .token").length > 0);
  await ask(second, "The SQLite ", { max_tokens: 5 });
  await metric(faulty.address, "hymo_waiting_requests", 1);
  await ask(third, "The SQLite ", { max_tokens: 5 });
  await state(third, "Refused.");
  assert.match(await problem(third), /try again/i);
  await first.click("#halt");
  await state(second, "Done.");
  await third.click("#go");
  await state(third, "Done.");
  assert.equal(await problem(third), "");
  for (const it of all) await closed(it);
});

await check("a model that fails, and a server that is gone", async () => {
  const it = await open(faulty.address);
  const { page } = it;
  await ask(page, "a fault, please", { max_tokens: 200 });
  await state(page, "Failed.");
  assert.match(await problem(page), /failed/i);
  assert.ok((await count(page)) > 5, "the text so far is gone");
  await inOrder(page, 1280);
  await ask(page, "The SQLite ", { max_tokens: 5 });
  await state(page, "Done.");
  await ask(page, "The SQLite ", { max_tokens: 900 });
  await page.waitForFunction(() => document.querySelectorAll("#output .token").length > 5);
  faulty.child.kill("SIGKILL");
  await state(page, "Failed.");
  assert.ok((await problem(page)).length > 10);
  await page.click("#go");
  await state(page, "Failed.");
  assert.match(await problem(page), /cannot be reached/);
  await closed(it);
});

for (const [scheme, width, height] of [["light", 1280, 900], ["dark", 1280, 900], ["light", 360, 780], ["dark", 360, 780]]) {
  await check(`${scheme}, ${width} pixels: axe and width in every state`, async () => {
    const it = await open(healthy.address, { viewport: { width, height }, colorScheme: scheme });
    const { page } = it;
    await inOrder(page, width);
    await page.click("summary");
    await inOrder(page, width);
    await ask(page, `The SQLite ${"x".repeat(80)} `, { max_tokens: 60, speculative: "true", temperature: 1.5 });
    await state(page, "Done.");
    await page.focus("#output");
    await page.keyboard.press("End");
    await inOrder(page, width);
    await ask(page, "The SQLite ", { max_tokens: 5000 });
    await state(page, "Refused.");
    await inOrder(page, width);
    await closed(it);
  });
}

for (const [name, width, height, colorScheme] of [["playground", 1280, 745, "light"], ["playground-phone", 360, 800, "dark"]]) {
  await check(`looks as it did: ${name}`, async () => {
    const it = await open(healthy.address, { viewport: { width, height }, colorScheme });
    const { page } = it;
    await ask(page, "The SQLite ", { max_tokens: 200, speculative: "true" });
    await state(page, "Done.");
    await page.locator("#output .token").nth(3).hover();
    await page.mouse.move(0, 0);
    const now = await page.screenshot({ fullPage: width < 500 });
    const file = new URL(`../../assets/${name}.png`, import.meta.url);
    if (process.env.KEEP) writeFileSync(file, now);
    else {
      const apart = await difference(page, readFileSync(file), now, "image/png");
      assert.ok(apart < 0.04, `mean difference ${apart.toFixed(3)}`);
    }
    await closed(it);
  });
}

await chrome.close();
for (const { child } of [healthy, faulty]) {
  if (child.exitCode !== null || child.signalCode !== null) continue;
  child.kill("SIGTERM");
  await once(child, "exit");
}
console.log(`${passed} checks passed, ${failures.length} failed`);
process.exit(failures.length ? 1 : 0);
