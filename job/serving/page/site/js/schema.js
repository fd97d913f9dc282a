// Schemas of OpenAPI in words: fields with types, bounds and descriptions, and an example.
import { html } from "./ui.js";

const DEEPEST = 4;

export function resolve(api, schema) {
  // What a reference names.
  let found = schema ?? {};
  for (let steps = 0; found.$ref && steps < DEEPEST; steps += 1) {
    found = found.$ref.slice(2).split("/").reduce((at, name) => at?.[name], api) ?? {};
  }
  return found;
}

export const inline = (text) => text.split("`").map((piece, k) => (k % 2 ? html`<code>${piece}</code>` : piece));

export function plainText(text = "") {
  // Paragraphs, with what stands in backquotes as code.
  return text.split(/\n\n+/).map((part) => html`<p>${inline(part)}</p>`);
}

export function typeOf(api, given) {
  const schema = resolve(api, given);
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return options.map((one) => typeOf(api, one)).join(" or ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${typeOf(api, schema.items ?? {})}`;
  if (schema.additionalProperties && schema.additionalProperties !== true) return `object of ${typeOf(api, schema.additionalProperties)}`;
  return schema.type ?? "anything";
}

function boundsOf(schema) {
  const found = [];
  if (schema.default !== undefined && schema.default !== null) found.push(`default ${JSON.stringify(schema.default)}`);
  if (schema.minimum !== undefined && Math.abs(schema.minimum) < 2 ** 53) found.push(`at least ${schema.minimum}`);
  if (schema.maximum !== undefined && Math.abs(schema.maximum) < 2 ** 53) found.push(`at most ${schema.maximum}`);
  if (schema.maxItems !== undefined) found.push(`at most ${schema.maxItems} items`);
  return found.join(", ");
}

export function Field({ api, name, schema, required, about, deep = 0 }) {
  const found = resolve(api, schema);
  const inner = [found, resolve(api, found.items), ...(found.anyOf ?? []).map((one) => resolve(api, one))].find((one) => one.properties);
  return html`
    <li>
      <code class="name">${name}</code> <span class="type">${typeOf(api, schema)}${required ? "" : ", optional"}</span>
      ${boundsOf(found) && html` <span class="type">(${boundsOf(found)})</span>`}
      ${(about ?? found.description) && html`<span class="text">${inline(about ?? found.description)}</span>`}
      ${inner && deep < DEEPEST && html`<${Fields} api=${api} schema=${inner} deep=${deep + 1} />`}
    </li>`;
}

export function Fields({ api, schema, deep = 0 }) {
  const found = resolve(api, schema);
  const names = Object.entries(found.properties ?? {});
  if (names.length === 0) return html`<p class="muted">${typeOf(api, found)}</p>`;
  return html`<ul class="fields">${names.map(([name, one]) => html`
    <${Field} key=${name} api=${api} name=${name} schema=${one} required=${found.required?.includes(name)} deep=${deep} />`)}</ul>`;
}

export function exampleOf(api, given, deep = 0) {
  // An example that a schema has, or one made of its types: required fields alone where an object has some.
  const schema = resolve(api, given);
  if (schema.example !== undefined) return schema.example;
  if (schema.examples?.length) return schema.examples[0];
  if (schema.default !== undefined && schema.default !== null) return schema.default;
  if (schema.enum) return schema.enum[0];
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return exampleOf(api, options[0], deep);
  if (deep > DEEPEST) return null;
  if (schema.type === "array") return [exampleOf(api, schema.items ?? {}, deep + 1)];
  if (schema.type === "object" || schema.properties) {
    const all = Object.entries(schema.properties ?? {});
    const needed = all.filter(([name]) => schema.required?.includes(name));
    return Object.fromEntries((needed.length ? needed : all.slice(0, 2)).map(([name, one]) => [name, exampleOf(api, one, deep + 1)]));
  }
  return { string: "", integer: 0, number: 0, boolean: false }[schema.type] ?? 7;
}
