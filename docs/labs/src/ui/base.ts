// What every lab shares: state in the URL, loading of presets and of a user's own files, size, motion, controls.
import { LitElement, css, html, nothing, type CSSResultGroup, type TemplateResult } from "lit";
import type { Config, Presets } from "../maths/config";

const here = import.meta.url;
const cache = new Map<string, Promise<unknown>>();

/** A data file of the site, fetched once per page. */
export function data<T>(name: string): Promise<T> {
  let found = cache.get(name);
  if (!found) {
    found = fetch(new URL(`../data/${name}.json`, here)).then((answer) => {
      if (!answer.ok) throw new Error(`${name}.json: ${answer.status}`);
      return answer.json();
    });
    cache.set(name, found);
  }
  return found as Promise<T>;
}

export const loadPresets = (): Promise<Presets> => data<Presets>("presets");

export const reducedMotion = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

export type Value = string | number;

export abstract class Lab extends LitElement {
  static override properties = { width: { state: true }, state: { state: true }, playing: { state: true }, note: { state: true } };
  /** Width of the stage in CSS pixels, so that text in a graphic keeps its size on a phone. */
  declare width: number;
  /** Everything that the controls set; each key is a parameter of the page's address. */
  declare state: Record<string, Value>;
  declare playing: boolean;
  declare note: string;
  protected presets?: Presets;
  protected abstract defaults: Record<string, Value>;
  private observer?: ResizeObserver;
  private sight?: IntersectionObserver;
  private timer = 0;

  constructor() {
    super();
    this.width = 640;
    this.state = {};
    this.playing = false;
    this.note = "";
  }

  /** Whether nothing can be shown before the presets are there. */
  protected get waits(): boolean {
    return true;
  }

  /** Files that a lab needs beyond the presets. */
  protected prepare(): Promise<void> {
    return Promise.resolve();
  }

  /** What a played lab does each time; returns false at the end. */
  protected advance(): boolean {
    return false;
  }

  /** Jump to where playing would end: what reduced motion gets. */
  protected finish(): void {}

  /** A file of the user, parsed; returns what was understood, or throws what was not. */
  protected accept(_file: unknown): string {
    throw new Error("this lab reads no file");
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.state = { ...this.defaults };
    for (const [key, value] of new URLSearchParams(location.search)) {
      if (!(key in this.defaults)) continue;
      const number = Number(value);
      if (typeof this.defaults[key] === "string") this.state[key] = value;
      else if (Number.isFinite(number)) this.state[key] = number;
    }
    this.observer = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width > 0 && width !== this.width) this.width = width;
    });
    this.sight = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting) this.pause();
    });
    this.sight.observe(this);
    document.addEventListener("visibilitychange", this.hidden_);
    if (!this.waits) {
      this.settle();
      return;
    }
    Promise.all([loadPresets(), this.prepare()]).then(
      ([presets]) => {
        this.presets = presets;
        this.settle();
        this.requestUpdate();
      },
      (error: unknown) => {
        this.note = `The lab's data could not be loaded: ${String(error)}`;
      },
    );
  }

  /** Bring values from the address into range once the data are there. */
  protected settle(): void {}

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.observer?.disconnect();
    this.sight?.disconnect();
    document.removeEventListener("visibilitychange", this.hidden_);
    this.pause();
  }

  private hidden_ = (): void => {
    if (document.hidden) this.pause();
  };

  override firstUpdated(): void {
    const stage = this.renderRoot.querySelector(".lab");
    if (stage) this.observer?.observe(stage);
  }

  override updated(): void {
    if ((this.presets || !this.waits) && this.dataset.state !== "ready") this.dataset.state = "ready";
  }

  protected get(key: string): number {
    return Number(this.state[key]);
  }

  protected clamp(key: string, low: number, high: number): void {
    this.state[key] = Math.min(high, Math.max(low, this.get(key)));
  }

  protected choose(key: string, options: string[]): void {
    if (!options.includes(String(this.state[key]))) this.state[key] = this.defaults[key];
  }

  protected set(key: string, value: Value): void {
    this.state = { ...this.state, [key]: value };
    this.settle();
    const address = new URL(location.href);
    for (const [name, now] of Object.entries(this.state)) {
      if (now === this.defaults[name]) address.searchParams.delete(name);
      else address.searchParams.set(name, String(now));
    }
    history.replaceState(history.state, "", address);
  }

  protected reset(): void {
    this.pause();
    this.note = "";
    for (const [key, value] of Object.entries(this.defaults)) this.set(key, value);
  }

  protected toggle(every = 350): void {
    if (this.playing) this.pause();
    else if (reducedMotion()) this.finish();
    else {
      this.playing = true;
      this.timer = window.setInterval(() => {
        if (!this.advance()) this.pause();
      }, every);
    }
  }

  protected pause(): void {
    window.clearInterval(this.timer);
    this.playing = false;
  }

  protected slider(
    key: string,
    label: string,
    low: number,
    high: number,
    step: number,
    shown: (value: number) => string = String,
  ): TemplateResult {
    const value = this.get(key);
    return html`<label class="control">
      <span class="name">${label} <output>${shown(value)}</output></span>
      <input
        type="range"
        name=${key}
        min=${low}
        max=${high}
        step=${step}
        .value=${String(value)}
        aria-valuetext=${shown(value)}
        @input=${(event: Event) => this.set(key, Number((event.target as HTMLInputElement).value))}
      />
    </label>`;
  }

  protected select(key: string, label: string, options: [string, string][]): TemplateResult {
    return html`<label class="control">
      <span class="name">${label}</span>
      <select name=${key} @change=${(event: Event) => this.set(key, (event.target as HTMLSelectElement).value)}>
        ${options.map(([value, text]) => html`<option value=${value} ?selected=${this.state[key] === value}>${text}</option>`)}
      </select>
    </label>`;
  }

  protected playButton(label: string, every?: number): TemplateResult {
    return html`<button type="button" class="play" aria-pressed=${this.playing} @click=${() => this.toggle(every)}>
      ${this.playing ? "❚❚ Pause" : `▶ ${label}`}
    </button>`;
  }

  protected resetButton(): TemplateResult {
    return html`<button type="button" class="reset" @click=${() => this.reset()}>Reset</button>`;
  }

  protected file(label: string): TemplateResult {
    return html`<label class="control file">
      <span class="name">${label}</span>
      <input type="file" accept=".yaml,.yml,.json,.jsonl" @change=${this.take} />
    </label>`;
  }

  private take = async (event: Event): Promise<void> => {
    const file = (event.target as HTMLInputElement).files?.[0];
    if (!file) return;
    try {
      const [{ parse }, presets] = await Promise.all([import("./files"), loadPresets()]);
      this.note = `${file.name}: ${this.accept(parse(await file.text(), file.name, presets.presets))}`;
    } catch (error) {
      this.note = `${file.name} was not taken: ${error instanceof Error ? error.message : String(error)}`;
    }
    this.requestUpdate();
  };

  protected frame(controls: TemplateResult, figure: TemplateResult, said: TemplateResult | string, rest: TemplateResult | typeof nothing = nothing): TemplateResult {
    return html`<section class="lab" aria-label=${this.getAttribute("label") ?? "Lab"}>
      <div class="controls">${controls}</div>
      <div class="figure">${figure}</div>
      <p class="said" aria-live="polite">${said}</p>
      ${this.note ? html`<p class="note" role="status">${this.note}</p>` : nothing}
      ${rest}
    </section>`;
  }

  protected table(title: string, head: string[], rows: (string | number)[][]): TemplateResult {
    return html`<details class="numbers">
      <summary>${title}</summary>
      <div class="scroll" tabindex="0" role="region" aria-label=${title}>
        <table>
          <thead>
            <tr>
              ${head.map((cell) => html`<th scope="col">${cell}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${rows.map(
              ([first, ...cells]) =>
                html`<tr>
                  <th scope="row">${first}</th>
                  ${cells.map((cell) => html`<td>${cell}</td>`)}
                </tr>`,
            )}
          </tbody>
        </table>
      </div>
    </details>`;
  }

  static override styles: CSSResultGroup = css`
    :host {
      display: block;
      color: var(--hymo-ink);
      font-family: var(--md-text-font-family, sans-serif);
      font-size: 15px;
      line-height: 1.5;
    }
    .lab {
      border: 1px solid var(--hymo-line);
      border-radius: 8px;
      background: var(--hymo-panel);
      overflow: hidden;
    }
    .controls {
      display: grid;
      grid-template-columns: repeat(auto-fill, minmax(min(180px, 100%), 1fr));
      gap: 10px 20px;
      align-items: end;
      padding: 14px 16px;
      border-bottom: 1px solid var(--hymo-line);
    }
    .control {
      display: flex;
      flex-direction: column;
      gap: 4px;
      min-width: 0;
    }
    .name {
      display: flex;
      justify-content: space-between;
      gap: 8px;
      font-size: 13px;
      color: var(--hymo-soft);
    }
    output {
      font-family: var(--md-code-font-family, monospace);
      color: var(--hymo-ink);
      font-variant-numeric: tabular-nums;
      white-space: nowrap;
    }
    input[type="range"] {
      width: 100%;
      margin: 0;
      height: 28px;
      accent-color: var(--hymo-gdn);
    }
    select,
    button,
    input[type="file"] {
      font: inherit;
      font-size: 14px;
      min-height: 34px;
      max-width: 100%;
      box-sizing: border-box;
      color: inherit;
      background: var(--hymo-panel);
      border: 1px solid var(--hymo-line);
      border-radius: 5px;
      padding: 4px 10px;
    }
    input[type="file"] {
      padding: 0;
      overflow: hidden;
    }
    input[type="file"]::file-selector-button {
      font: inherit;
      width: 100%;
      min-height: 32px;
      margin: 0 3em 0 0;
      padding: 4px 10px;
      text-align: left;
      color: inherit;
      background: transparent;
      border: 0;
      cursor: pointer;
    }
    input[type="file"]:hover {
      border-color: var(--hymo-gdn);
    }
    button {
      cursor: pointer;
      border-color: var(--hymo-soft);
    }
    button:hover {
      border-color: var(--hymo-gdn);
    }
    button.play {
      border-color: var(--hymo-gdn);
      color: var(--hymo-gdn);
      font-weight: 600;
    }
    .buttons {
      display: flex;
      flex-wrap: wrap;
      gap: 8px;
    }
    :is(button, input, select, summary, [tabindex]):focus-visible {
      outline: 2px solid var(--hymo-gdn);
      outline-offset: 2px;
    }
    .figure {
      padding: 14px 16px 4px;
    }
    svg {
      display: block;
      max-width: 100%;
      font-family: var(--md-text-font-family, sans-serif);
      font-variant-numeric: tabular-nums;
    }
    svg text {
      fill: var(--hymo-ink);
      font-size: 12px;
    }
    svg text.soft {
      fill: var(--hymo-soft);
    }
    svg .axis {
      stroke: var(--hymo-line);
    }
    .said {
      margin: 0;
      padding: 8px 16px 14px;
      max-width: 62em;
    }
    .said b,
    .key {
      font-weight: 600;
    }
    .note {
      margin: 0 16px 14px;
      padding: 8px 12px;
      border-left: 3px solid var(--hymo-mla);
      background: var(--hymo-mla-soft);
    }
    .formula {
      font-family: var(--md-code-font-family, monospace);
      font-size: 13px;
      padding: 8px 12px;
      margin: 8px 0 0;
      border-radius: 5px;
      background: var(--md-code-bg-color);
      overflow-wrap: anywhere;
    }
    @media (max-width: 480px) {
      .controls {
        grid-template-columns: repeat(2, minmax(0, 1fr));
        gap: 8px 16px;
      }
      .controls > :is(.file, .buttons, :has(select)) {
        grid-column: 1 / -1;
      }
      .name {
        flex-wrap: wrap;
        row-gap: 0;
      }
    }
    .numbers {
      border-top: 1px solid var(--hymo-line);
      padding: 8px 16px;
    }
    summary {
      cursor: pointer;
      color: var(--hymo-soft);
      font-size: 13px;
      min-height: 24px;
    }
    .scroll {
      overflow-x: auto;
      max-height: 320px;
    }
    table {
      border-collapse: collapse;
      font-size: 13px;
      font-variant-numeric: tabular-nums;
      margin: 8px 0;
    }
    th,
    td {
      text-align: right;
      font-weight: 400;
      padding: 3px 12px 3px 0;
      border-bottom: 1px solid var(--hymo-line);
      white-space: nowrap;
    }
    th:first-child {
      text-align: left;
    }
    thead th {
      color: var(--hymo-soft);
    }
    @media print {
      .controls,
      .numbers {
        display: none;
      }
    }
  `;
}

export const number = (value: number, digits = 0): string =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

export function size(bytes: number): string {
  for (const [unit, shift] of [["TiB", 40], ["GiB", 30], ["MiB", 20], ["KiB", 10]] as const) {
    if (bytes >= 2 ** shift) {
      const shown = bytes / 2 ** shift;
      return `${shown.toFixed(shown < 10 ? 2 : 1)} ${unit}`;
    }
  }
  return `${bytes} B`;
}

export function short(value: number): string {
  for (const [unit, scale] of [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e3]] as const) {
    if (Math.abs(value) >= scale) {
      const shown = value / scale;
      return `${shown.toFixed(shown < 10 ? 2 : 1)} ${unit}`;
    }
  }
  return String(Math.round(value * 100) / 100);
}

/** A configuration from the user's file, or an error that says what is missing. */
export function asConfig(file: unknown): Config {
  const tree = file as Partial<Config> | null;
  if (!tree || typeof tree !== "object" || !tree.model) {
    throw new Error("no configuration: expected the groups model, optimizer, scheduler, training and run, as `hymo config show` prints them");
  }
  for (const key of ["dim", "n_layers", "mla_layers", "n_heads", "vocab_size"]) {
    if (!(key in tree.model)) throw new Error(`model.${key} is missing: load a resolved configuration, from \`hymo config show\` or a run's config.yaml`);
  }
  for (const group of ["optimizer", "scheduler", "training", "run"] as const) {
    if (!tree[group]) throw new Error(`the group ${group} is missing: load a resolved configuration`);
  }
  return tree as Config;
}
