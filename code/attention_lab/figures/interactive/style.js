/**
 * The style of every figure. Text and lines take the page's own colour; the
 * fixed colours are those of the palette, each with the ink that reads on it.
 */
export const STYLE = `
.attn-stage{--l:#1f6fb5;--s:#b0530a;--d:#0c7c7c;--h:#8250c4;
--kept:#bcd7ef;--bad:#c92a2a;--ok:#1a7f37;--line:color-mix(in srgb,currentColor 45%,transparent);
--hatch:repeating-linear-gradient(135deg,var(--line) 0 1px,transparent 1px 5px);
font-size:.95rem;line-height:1.45;color:inherit;contain:layout style}
.attn-stage *{box-sizing:border-box}
.attn-stage [hidden]{display:none!important}
.attn-stage p{margin:.5em 0}
.attn-row,.attn-parts{display:flex;flex-wrap:wrap;gap:8px;align-items:flex-end}
.attn-parts{gap:14px 12px;align-items:flex-start;margin:14px 0}
.attn-stage button,.attn-stage select{font:inherit;color:inherit;min-height:44px;
min-width:44px;background:transparent;border:1px solid var(--line);
border-radius:4px;padding:4px 12px;max-width:100%;cursor:pointer}
.attn-stage option{color:CanvasText;background:Canvas}
.attn-stage button:hover{border-color:currentColor}
.attn-stage button[aria-pressed=true]{border-color:var(--bad);
box-shadow:inset 0 -3px var(--bad)}
.attn-stage :focus-visible{outline:3px solid currentColor;outline-offset:2px}
.attn-stage label{display:grid;gap:2px;font-size:.9em;max-width:100%}
.attn-stage kbd{font:inherit;font-size:.8em;color:inherit;background:none;
box-shadow:none;border:1px solid var(--line);border-radius:3px;padding:0 .35em;
margin-left:.5em}
.attn-stage dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 12px;
margin:8px 0}
.attn-stage dt,.attn-stage dd{margin:0;font-weight:400}
.attn-stage dt kbd{margin:0}
.attn-card{border:1px solid var(--line);border-left:4px solid var(--l);
padding:4px 14px 12px;margin:10px 0}
.attn-card .attn-row{margin-top:8px}
.attn-stage table{border-collapse:separate;border-spacing:0;margin:0;display:table;
table-layout:fixed;font-variant-numeric:tabular-nums;font-size:12.5px;line-height:1;
color:inherit}
.attn-stage caption{caption-side:top;text-align:left;font-weight:600;
font-size:14px;height:30px;line-height:20px;padding:0;color:inherit;
white-space:nowrap}
.attn-stage tr,.attn-stage thead{background:none!important;border:0}
.attn-stage table th,.attn-stage table td{height:26px;padding:0;text-align:center;border:0;
font-weight:400;color:inherit;vertical-align:middle}
.attn-stage th[scope=row]{text-align:right;padding-right:5px}
.attn-stage td.attn-cell{box-shadow:inset 0 0 0 .5px #6b7280;font-size:11.5px}
.attn-stage td.attn-long{font-size:10px}
.attn-stage td.attn-num{text-align:right;padding:0 4px;
box-shadow:inset 0 -1px var(--line)}
.attn-stage th.attn-num{text-align:right;padding:0 4px 0 0}
.attn-stage td.attn-new{font-weight:700}
.attn-stage td.attn-none{background:var(--hatch)}
.attn-stage td.attn-off{outline:2px dashed var(--bad);outline-offset:-2px}
.attn-scroll{overflow-x:auto}
.attn-chip{display:inline-block;min-width:1.5em;text-align:center;
font-weight:700;border-radius:3px;color:#fff!important;line-height:20px;
vertical-align:top}
.attn-stage .attn-l{background:var(--l)}.attn-stage .attn-s{background:var(--s)}
.attn-stage .attn-d{background:var(--d)}.attn-stage .attn-b{background:#5b6573}
.attn-stage .attn-h{background:var(--h)}.attn-stage .attn-e{background:#75680a}
.attn-stage .attn-p{background:#85604a}
.attn-stage .attn-ok{background:var(--ok)}
.attn-stage .attn-bad{background:var(--bad)}
.attn-verdict{font-size:.95em}
.attn-board{display:grid;gap:2px;width:max-content;font-size:13px;
font-variant-numeric:tabular-nums}
.attn-board>div{display:contents}
.attn-board span{min-width:var(--size);height:var(--size);display:grid;
place-items:center;cursor:default}
.attn-board .attn-head{min-width:26px;height:22px;font-size:12px;border:0!important}
.attn-board .attn-side{height:var(--size);min-width:30px}
.attn-board [role=gridcell]{border:1px dashed var(--line);cursor:pointer}
.attn-board .attn-head[role=gridcell]{border:0}
.attn-board .attn-seen{background:var(--kept);color:#000;border:1px solid #6b7280}
.attn-board .attn-skipped{background:var(--hatch)}
.attn-board [aria-selected=true]{border:3px solid currentColor;font-weight:700}
.attn-board .attn-seen[aria-selected=true]{border-color:#000;
box-shadow:0 0 0 2px var(--kept)}
.attn-title4{font-weight:600;font-size:14px;line-height:20px;
margin:0 0 6px!important}
.attn-told{min-height:4.4em;border-left:3px solid var(--line);padding-left:12px}
@media print{.attn-stage{display:none!important}}
@media not print{.attn-on>.attn-static,.attn-on .attn-caption>.attn-static
{display:none!important}}
@media (prefers-reduced-motion:no-preference){.attn-bar i{transition:width .15s}}
`;
