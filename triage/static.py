from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStaticFilesStorage(CompressedManifestStaticFilesStorage):
    """Names with a hash of the content, cached for ever; imports between ES modules are rewritten to those names."""
    support_js_module_import_aggregation = True
