"use strict";
const by = id => document.getElementById(id);
const UNKNOWN = "–";
const known = value => value !== null && value !== undefined;

function figure(value, digits = 0) {
  if (!known(value)) return UNKNOWN;
  return value.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

const speed = value => figure(value, known(value) && value < 100 ? 1 : 0);
const share = (part, whole) => whole ? `${(100 * part / whole).toFixed(0)} %` : UNKNOWN;
const ratio = (part, whole) => whole ? (part / whole).toFixed(2) : UNKNOWN;
const counted = (number, noun) => `${figure(number)} ${noun}${number === 1 ? "" : "s"}`;
const megabytes = value =>
  !known(value) ? UNKNOWN : value < 1000 ? `${figure(value)} MB` : `${figure(value / 1000, 2)} GB`;

function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)}\u00a0s`;
  return seconds < 120 ? `${seconds.toFixed(0)}\u00a0s` : `${(seconds / 60).toFixed(0)}\u00a0min`;
}

const clock = ms => new Date(ms).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", second: "2-digit"});

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function made(tag, kind, text) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.textContent = text;
  return element;
}
