<#
.SYNOPSIS
Runs scripts/run_ablation.py, from any folder, and exits with its status.

.DESCRIPTION
All further arguments are passed on: the plan, and --methods, --gamma, --set, --dry-run and the others.
Nothing is positional here, so the plan may come first.

.PARAMETER Prompt
One prompt to run in place of the plan's.

.PARAMETER Runner
What runs the script, with its own arguments; a path with spaces in double quotes. Default: uv run.

.EXAMPLE
./scripts/run_ablation.ps1

.EXAMPLE
./scripts/run_ablation.ps1 gamma -Prompt "Why is the sky blue?" --gamma 2,4

.EXAMPLE
./scripts/run_ablation.ps1 quick -Runner '"C:\my tools\python.exe" -u' --dry-run
#>
[CmdletBinding(PositionalBinding = $false)]
param(
    [string] $Prompt,
    [string] $Runner = 'uv run',
    [Parameter(ValueFromRemainingArguments = $true)]
    [object[]] $Rest = @()
)

$ErrorActionPreference = 'Stop'
$PSNativeCommandUseErrorActionPreference = $false  # the status is passed on, not thrown
$PSNativeCommandArgumentPassing = 'Standard'

$root = Split-Path -Parent $PSScriptRoot
$words = @([regex]::Matches($Runner, '"[^"]+"|\S+') | ForEach-Object { $_.Value.Trim('"') })
if ($words.Count -eq 0) {
    [Console]::Error.WriteLine('error: -Runner is empty; allowed: a command such as "uv run"')
    exit 2
}
$command = $words[0]
$arguments = @($words | Select-Object -Skip 1)

# uv looks for the project in the current folder; here it is always this one.
if ($command -eq 'uv' -and $arguments.Count -gt 0 -and $arguments[0] -eq 'run') {
    $arguments = @('run', '--project', $root) + @($arguments | Select-Object -Skip 1)
}

$arguments += Join-Path $PSScriptRoot 'run_ablation.py'
# PowerShell reads 2,4 as a list; the script wants it as it was typed.
foreach ($one in $Rest) { $arguments += ($one -join ',') }
if ($PSBoundParameters.ContainsKey('Prompt')) { $arguments += @('--prompt', $Prompt) }

# Before 7.3, PowerShell puts quotes around a text with spaces, but loses those inside it; a backslash at its end
# would hide the closing one.
if ($PSVersionTable.PSVersion -lt [version] '7.3') {
    $arguments = @($arguments | ForEach-Object {
            if ($_ -eq '') { '""' } else { $_ -replace '(\\*)"', '$1$1\"' -replace '(?<=\s.*)(\\+)$', '$1$1' }
        })
}

& $command @arguments
exit $LASTEXITCODE
