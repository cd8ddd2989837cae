"""A server of the workbench: methods by request, in OpenAI's shapes."""
